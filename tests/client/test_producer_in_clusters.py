"""The producer against simulated clusters: new topics, limits, refusals."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparrowmq.client.errors import NoRoute
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster


def produce(
    sim: RunningCluster, work: Callable[[Producer], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    async def on_the_host() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client, **settings) as producer:
            await work(producer)
        await client.stop()

    future: asyncio.Future[None] = sim.host("producer").start(on_the_host())
    sim.wait(future)


@pytest.mark.parametrize(("asked", "per_broker"), [(4, 4), (8, 8), (16, 8)])
def test_a_new_topic_gets_the_queues_the_producer_asks_for_up_to_the_brokers_limit(
    asked: int, per_broker: int
) -> None:
    async def send_to_all(producer: Producer) -> None:
        for _ in range(2 * per_broker):
            assert (await producer.send(Message("new", b"x"))).is_ok

    with SimCluster(seed=1, brokers=2).run() as sim:
        produce(sim, send_to_all, default_queues=asked)
        made = [node.broker.topics.get("new") for node in sim.brokers.values()]
        assert [topic.write_queue_nums for topic in made if topic] == [per_broker, per_broker]
        assert [topic.perm for topic in made if topic] == [6, 6]


def test_a_new_topic_reaches_every_broker_although_its_first_messages_are_far_apart() -> None:
    async def send_slowly(producer: Producer) -> None:
        for _ in range(8):
            await producer.send(Message("new", b"x"))
            await asyncio.sleep(3)

    with SimCluster(seed=1, brokers=2).run() as sim:
        produce(sim, send_slowly)
        assert all("new" in node.broker.topics for node in sim.brokers.values())


def test_a_new_topics_own_route_is_used_when_every_broker_has_had_time_to_create_it() -> None:
    async def send_for_two_minutes(producer: Producer) -> None:
        for _ in range(24):
            await producer.send(Message("new", b"x"))
            await asyncio.sleep(5)
        route = core_of_producer(producer).route_table.get("new")
        assert route is not None
        assert [data.write_queue_nums for data in route.queue_datas] == [4, 4]
        assert not core_of_producer(producer).route_table.is_lent(
            "new", asyncio.get_running_loop().time()
        )

    with SimCluster(seed=1, brokers=2).run() as sim:
        produce(sim, send_for_two_minutes)


def test_without_auto_creation_a_new_topic_is_refused_with_the_remedy() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(NoRoute, match="sparrowmq topic create new"):
            await producer.send(Message("new", b"x"))

    with SimCluster(seed=1, auto_create_topic=False).run() as sim:
        produce(sim, send)
        assert "new" not in sim.broker.topics


def test_a_body_over_4_mib_is_refused_before_anything_is_sent() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(ValueError, match="body of 4194305 bytes, at most 4194304 allowed"):
            await producer.send(Message("big", b"x" * (4 * 1024 * 1024 + 1)))

    with SimCluster(seed=1).run() as sim:
        produce(sim, send)
        assert "big" not in sim.broker.topics


def test_a_body_of_4096_bytes_is_compressed_and_one_of_4095_and_a_batch_are_not() -> None:
    sizes: dict[int, int] = {}

    async def send(producer: Producer) -> None:
        for size in (4095, 4096):
            sent = await producer.send(Message("bodies", b"x" * size))
            offset = int(sent.offset_msg_id[16:], 16)
            record = sim.broker.store.read_message(offset)
            sizes[size] = len(record or b"")
        batch = await producer.send_batch([Message("bodies", b"x" * 4096)])
        offset = int(batch[0].offset_msg_id[16:], 16)
        sizes[-1] = len(sim.broker.store.read_message(offset) or b"")

    with SimCluster(seed=1).run() as sim:
        produce(sim, send)
    assert sizes[4095] > 4095
    assert sizes[4096] < 1000
    assert sizes[-1] > 4096


def test_no_send_fails_while_one_of_two_brokers_hangs() -> None:
    sent: list[SendResult] = []

    async def send_for_20_seconds(producer: Producer) -> None:
        for _ in range(12):  # both brokers create the topic
            await producer.send(Message("orders", b"first"))
        sim.host("broker-a").pause()
        for number in range(20):
            sent.append(await producer.send(Message("orders", b"%d" % number)))
            await asyncio.sleep(1)
        sim.host("broker-a").resume()

    with SimCluster(seed=1, brokers=2).run() as sim:
        produce(sim, send_for_20_seconds)
        assert {result.queue.broker_name for result in sent} == {"broker-b"}
        assert all(result.is_ok for result in sent)
