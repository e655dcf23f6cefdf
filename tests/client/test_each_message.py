"""Handlers of single messages: `start(each=…)`, in place of a handler of batches."""

import asyncio
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest

from sparrowmq import MessageExt, PushConsumer, blocking
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.testing import Cluster
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset


def consumed(sim: RunningCluster, each: Callable[[MessageExt], Any], **options: Any) -> None:
    """Consume with a handler of single messages for 20 s."""

    async def live() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        consumer = PushConsumer(
            GROUP,
            {TOPIC: "*"},
            client=client,
            threads=InlineWorkers(),
            from_where="FIRST_OFFSET",
            **options,
        )
        async with consumer:
            await consumer.start(each=each)
            await asyncio.sleep(20)
        await client.stop()

    sim.run(live(), on=sim.host("member"))


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_gets_one_message_at_a_time(orderly: bool, is_async: bool) -> None:
    got: list[bytes] = []

    def plain(message: MessageExt) -> None:
        got.append(message.body)

    async def waiting(message: MessageExt) -> None:
        await asyncio.sleep(0.1)
        got.append(message.body)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c")
        consumed(sim, waiting if is_async else plain, orderly=orderly)
        assert got == [b"a", b"b", b"c"]
        assert stored_offset(sim) == 3


def test_only_the_message_whose_handler_raised_is_retried() -> None:
    got: list[tuple[bytes, int]] = []

    async def fail_once(message: MessageExt) -> None:
        got.append((message.body, message.reconsume_times))
        if message.body == b"b" and not message.reconsume_times:
            raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c")
        consumed(sim, fail_once)
        assert got == [(b"a", 0), (b"b", 0), (b"c", 0), (b"b", 1)]


async def each(message: MessageExt) -> None:
    raise AssertionError("nothing is consumed here")


@pytest.mark.parametrize(
    ("batch", "handlers", "fault"),
    [
        (4, {"each": each}, "batch is 4, but `each` gets one message at a time"),
        (1, {"each": each, "handler": each}, "cannot be combined"),
        (1, {}, "handler is None, must be a function"),
        (1, {"each": 5}, "each is 5, must be a function that takes message"),
        (1, {"each": lambda: None}, r"each takes \(\), must take one argument: the message"),
    ],
)
def test_what_cannot_be_a_handler_of_single_messages(
    batch: int, handlers: dict[str, Any], fault: str
) -> None:
    for start in ("start", "run"):
        consumer = PushConsumer(GROUP, {TOPIC: "*"}, batch=batch)
        with pytest.raises(ValueError, match=fault):
            asyncio.run(getattr(consumer, start)(**handlers))


def test_each_works_without_asyncio(sparrowmq_cluster: Cluster) -> None:
    got: Queue[bytes] = Queue()
    servers = sparrowmq_cluster.name_server
    with blocking.Producer("shop", name_servers=servers) as producer:
        producer.send(blocking.Message("orders", b"one"))
    consumer = blocking.PushConsumer(
        GROUP, {"orders": "*"}, name_servers=servers, from_where="FIRST_OFFSET"
    )
    with consumer:
        consumer.start(each=lambda message: got.put(message.body))
        assert got.get() == b"one"
