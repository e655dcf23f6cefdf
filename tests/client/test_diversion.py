"""Producers that divert messages to another topic when a limit refuses them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sparrowmq.client.errors import LimitReached, NoRoute, NotDeduplicated
from sparrowmq.client.prometheus_hooks import PrometheusHooks
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import TransactionalProducer, TransactionState
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.virtual_tasks import SimTask

OTHER = {"orders": "orders-overflow"}
QUEUE = MessageQueue("orders", "broker-a", 0)


def topic(sim: RunningCluster, name: str, attributes: str = "", broker: str = "broker-a") -> None:
    header = CreateTopic(
        topic=name, read_queue_nums=1, write_queue_nums=1, perm=6, attributes=attributes or None
    )
    answer = sim.wait(sim.client.call(header, address=sim.brokers[broker].address))
    assert answer.code == ResponseCode.SUCCESS
    sim.advance(1)


def limited(sim: RunningCluster, per_second: int, broker: str = "broker-a") -> None:
    topic(sim, "orders", f"+sparrowmq.quota.messages={per_second}", broker)


def bodies(sim: RunningCluster, name: str, broker: str = "broker-a") -> list[bytes]:
    return [message.body for message in stored(sim, name, broker)]


def stored(sim: RunningCluster, name: str, broker: str = "broker-a") -> list[MessageExt]:
    store = sim.brokers[broker].broker.store
    found: list[MessageExt] = []
    for log_offset, _, _ in store.units(name, 0, 0, 100_000):
        record = store.read_message(log_offset)
        assert record is not None
        found += decode_messages(record)
    return found


def produce(
    sim: RunningCluster,
    work: Callable[[Any], Coroutine[Any, Any, Any]],
    make: Callable[..., Any] = Producer,
    **settings: Any,
) -> SimTask[Any]:
    async def on_the_host() -> Any:
        client = sim.client_on("producer")
        await client.start()
        async with make("orders-svc", client=client, **settings) as producer:
            result = await work(producer)
        await client.stop()
        return result

    return sim.host("producer").start(on_the_host())


async def send(producer: Producer, count: int) -> list[SendResult]:
    return [await producer.send(Message("orders", b"%d" % number)) for number in range(count)]


def test_messages_over_quota_are_diverted_to_the_other_topic_and_marked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "sparrowmq")
    counts: list[dict[str, int]] = []

    async def work(producer: Producer) -> list[SendResult]:
        results = await send(producer, 8)
        counts.append(producer.diverted())
        return results

    with SimCluster(seed=1).run() as sim:
        limited(sim, 3)
        topic(sim, "orders-overflow")
        began_s = sim.now_s
        results = sim.wait(produce(sim, work, when_refused=OTHER))
        assert sim.now_s - began_s < 0.3, "nothing waits for the quota"
        assert bodies(sim, "orders") == [b"0", b"1", b"2"]
        moved = stored(sim, "orders-overflow")
        assert [message.body for message in moved] == [b"3", b"4", b"5", b"6", b"7"]
        assert {message.properties["DIVERTED_FROM"] for message in moved} == {"orders"}
        assert [result.diverted_from for result in results] == [""] * 3 + ["orders"] * 5
        assert {result.queue.topic for result in results[3:]} == {"orders-overflow"}
        assert [result.msg_id for result in results[3:]] == [message.msg_id for message in moved]
        assert counts == [{"orders": 5}]
        lines = [record.getMessage() for record in caplog.records]
        assert len([line for line in lines if "orders-overflow" in line]) == 2
        assert any("topic orders refuses messages, which go to" in line for line in lines)
        assert "5 messages of topic orders went to orders-overflow in all" in lines


def test_a_program_can_send_diverted_messages_back() -> None:
    async def send_back(producer: Producer) -> None:
        for message in moved:
            back = Message(
                message.properties["DIVERTED_FROM"],
                message.body,
                tags=message.tags,
                keys=message.keys,
                properties=message.user_properties,
            )
            await producer.send(back)

    with SimCluster(seed=1).run() as sim:
        limited(sim, 3)
        topic(sim, "orders-overflow")
        sim.wait(produce(sim, lambda producer: send(producer, 5), when_refused=OTHER))
        moved = stored(sim, "orders-overflow")
        sim.advance(2)
        sim.wait(produce(sim, send_back))
        assert bodies(sim, "orders") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("retries", [0, 2])
def test_a_producer_that_retries_tries_every_broker_before_it_diverts(retries: int) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        limited(sim, 1)
        limited(sim, 1000, "broker-b")
        topic(sim, "orders-overflow")
        sim.wait(
            produce(sim, lambda producer: send(producer, 20), when_refused=OTHER, retries=retries)
        )
        assert len(bodies(sim, "orders")) == 1
        diverted = len(bodies(sim, "orders-overflow"))
        assert len(bodies(sim, "orders", "broker-b")) == 19 - diverted
        assert diverted == (0 if retries else 9)


def test_a_broker_that_is_away_does_not_keep_a_refused_message_waiting() -> None:
    async def work(producer: Producer) -> float:
        loop = asyncio.get_running_loop()
        await send(producer, 2)
        sim.brokers["broker-b"].host.kill()
        await asyncio.sleep(0.1)  # its connection is known to be lost
        began_s = loop.time()
        await send(producer, 4)
        return loop.time() - began_s

    with SimCluster(seed=1, brokers=2).run() as sim:
        limited(sim, 1)
        limited(sim, 1, "broker-b")
        topic(sim, "orders-overflow")
        took_s = sim.wait(produce(sim, work, when_refused=OTHER))
        assert took_s < 1
        assert len(bodies(sim, "orders-overflow")) == 4


def test_a_batch_is_diverted_as_it_is_split() -> None:
    async def work(producer: Producer) -> list[SendResult]:
        return await producer.send_batch([Message("orders", b"%d" % n * 300) for n in range(8)])

    with SimCluster(seed=1).run() as sim:
        limited(sim, 2)
        topic(sim, "orders-overflow")
        results = sim.wait(produce(sim, work, when_refused=OTHER, max_body_bytes=1200))
        # The first batch passes while a token is there, and overdraws.
        assert [result.diverted_from for result in results] == ["", "orders", "orders"]
        assert len(bodies(sim, "orders")) == 3
        moved = stored(sim, "orders-overflow")
        assert [message.body[:1] for message in moved] == [b"3", b"4", b"5", b"6", b"7"]
        assert {message.properties["DIVERTED_FROM"] for message in moved} == {"orders"}
        ids = [msg_id for result in results[1:] for msg_id in result.msg_id.split(",")]
        assert ids == [message.msg_id for message in moved]


def test_a_batch_at_the_limit_of_its_size_can_still_be_diverted() -> None:
    most = 2000

    async def work(producer: Producer) -> list[SendResult]:
        await producer.send(Message("orders", b"x"))
        return await producer.send_batch([Message("orders", b"x" * 40)] * 60)

    with SimCluster(seed=1, max_message_bytes=most).run() as sim:
        limited(sim, 1)
        topic(sim, "orders-overflow")
        sim.wait(produce(sim, work, when_refused=OTHER, max_body_bytes=most))
        assert len(bodies(sim, "orders-overflow")) == 60


def test_a_failure_of_the_other_topic_is_raised_with_the_refusal_as_its_context() -> None:
    async def work(producer: Producer) -> Exception:
        await send(producer, 1)
        with pytest.raises(LimitReached) as caught:
            await producer.send(Message("orders", b"x"))
        return caught.value

    with SimCluster(seed=1).run() as sim:
        limited(sim, 1)
        topic(sim, "orders-overflow", "+sparrowmq.quota.messages=1")
        sim.wait(produce(sim, lambda p: p.send_batch([Message("orders-overflow", b"x")] * 9)))
        error = sim.wait(produce(sim, work, when_refused=OTHER, timeout_s=2.0))
        assert "topic orders-overflow takes 1" in str(error)
        assert "topic orders takes 1" in str(error.__context__)


def test_a_diverted_message_does_not_create_a_missing_topic() -> None:
    async def work(producer: Producer) -> Exception:
        await send(producer, 1)
        with pytest.raises(NoRoute, match="sparrowmq topic create orders-overflow") as caught:
            await producer.send(Message("orders", b"x"))
        return caught.value

    with SimCluster(seed=1).run() as sim:
        limited(sim, 1)
        error = sim.wait(produce(sim, work, when_refused=OTHER))
        assert isinstance(error.__context__, LimitReached)
        assert "orders-overflow" not in sim.brokers["broker-a"].broker.topics
        topic(sim, "orders-overflow")
        results = sim.wait(produce(sim, lambda p: send(p, 3), when_refused=OTHER))
        assert [result.diverted_from for result in results][1:] == ["orders", "orders"]


def test_an_idempotent_producer_needs_the_other_topic_to_be_deduplicated_too() -> None:
    async def work(producer: Producer) -> list[SendResult]:
        await send(producer, 1)
        with pytest.raises(NotDeduplicated, match="orders-overflow"):
            await producer.send(Message("orders", b"x"))
        return []

    with SimCluster(seed=1).run() as sim:
        topic(sim, "orders", "+sparrowmq.quota.messages=1,+sparrowmq.dedup=on")
        topic(sim, "orders-overflow")
        sim.wait(produce(sim, work, when_refused=OTHER, idempotent=True))
        topic(sim, "orders-overflow", "+sparrowmq.dedup=on")
        results = sim.wait(produce(sim, lambda p: send(p, 3), when_refused=OTHER, idempotent=True))
        assert [result.diverted_from for result in results] == ["", "orders", "orders"]


async def _keyed(producer: Any) -> None:
    await producer.send(Message("orders", b"x"), key="k")


async def _sharded(producer: Any) -> None:
    await producer.send(Message("orders", b"x", sharding_key="k"))


async def _to_a_queue(producer: Any) -> None:
    await producer.send(Message("orders", b"x"), queue=QUEUE)


async def _oneway(producer: Any) -> None:
    await producer.send_oneway(Message("orders", b"x"))


async def _request(producer: Any) -> None:
    await producer.request(Message("orders", b"x"))


async def _in_transaction(producer: Any) -> None:
    await producer.send_in_transaction(Message("orders", b"x"))


class Listener:
    def execute(self, half: object) -> TransactionState:
        return TransactionState.COMMIT

    check = execute


def _transactional(group: str, **settings: Any) -> TransactionalProducer:
    return TransactionalProducer(group, Listener(), **settings)


CANNOT = [
    (_keyed, Producer, "a message with a key"),
    (_sharded, Producer, "it has an order"),
    (_to_a_queue, Producer, "queue or selector to topic orders cannot be diverted"),
    (_oneway, Producer, "a one-way send to topic orders"),
    (_request, Producer, "a request to topic orders"),
    (_in_transaction, _transactional, "a half message to topic orders cannot be diverted"),
]


@pytest.mark.parametrize(
    ("work", "make", "text"), CANNOT, ids=lambda case: getattr(case, "__name__", "")
)
def test_what_cannot_be_diverted_is_refused_before_anything_is_sent(
    work: Callable[[Any], Coroutine[Any, Any, None]], make: Any, text: str
) -> None:
    async def refused(producer: Any) -> None:
        with pytest.raises(ValueError, match=text):
            await work(producer)

    with SimCluster(seed=1).run() as sim:
        topic(sim, "orders")
        sim.wait(produce(sim, refused, make, when_refused=OTHER))
        assert bodies(sim, "orders") == []
        if work is not _request:  # no consumer replies
            sim.wait(produce(sim, work, make, when_refused={"others": "orders-overflow"}))
            assert bodies(sim, "orders") == [b"x"]


def test_diverted_messages_are_counted_for_prometheus() -> None:
    registry = CollectorRegistry()

    async def work(producer: Producer) -> None:
        await send(producer, 3)
        await producer.send_batch([Message("orders", b"x")] * 4)

    with SimCluster(seed=1).run() as sim:
        limited(sim, 1)
        topic(sim, "orders-overflow")
        sim.wait(produce(sim, work, when_refused=OTHER, hooks=[PrometheusHooks(registry)]))
    labels = {"topic": "orders", "diverted_to": "orders-overflow"}
    assert registry.get_sample_value("sparrowmq_client_messages_diverted_total", labels) == 6


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("orders-overflow", "when_refused is 'orders-overflow', must be a mapping such as"),
        ({"orders": 1}, "when_refused has the topic 1, must be a mapping such as"),
        ({"orders": "or ders"}, "or ders"),
        ({"orders": "orders"}, "diverts orders to itself"),
        ({"a": "b", "b": "c"}, "diverts a to b, which has a diversion too: a message is diverted"),
        ({"orders": "%RETRY%billing"}, "names %RETRY%billing, which is not a topic of a program"),
        ({"orders": "RMQ_SYS_TRACE_TOPIC"}, "names RMQ_SYS_TRACE_TOPIC, which is not a topic"),
    ],
)
def test_invalid_diversion_settings_are_refused_by_the_constructor(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Producer("orders-svc", when_refused=given)
