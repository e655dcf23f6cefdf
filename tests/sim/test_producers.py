"""The producer in a cluster whose servers fail."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparrowmq.client.errors import BrokerRefused
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster


def produce(
    sim: RunningCluster,
    work: Callable[[Producer], Coroutine[Any, Any, None]],
    *,
    retries: int = 2,
) -> asyncio.Future[None]:
    """Run the work with a producer on its own host."""

    async def on_the_host() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client, retries=retries) as producer:
            await work(producer)
        await client.stop()

    return sim.host("producer").start(on_the_host())


def create_topic(sim: RunningCluster, *, queues: int = 4) -> None:
    """On every broker, and known to the name servers."""
    header = CreateTopic(
        topic="orders",
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
    )
    for node in sim.brokers.values():
        sim.wait(sim.client.call(header, address=node.address))
    sim.advance(1)


def test_a_producer_uses_every_broker() -> None:
    used: set[str] = set()

    async def send_some(producer: Producer) -> None:
        for number in range(20):
            result = await producer.send(Message("orders", b"%d" % number))
            assert result.is_ok
            used.add(result.queue.broker_name)

    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        sim.wait(produce(sim, send_some))
        assert used == {"broker-a", "broker-b"}


def test_no_send_fails_while_one_of_two_brokers_is_killed_and_comes_back() -> None:
    sent = []

    async def send_for_a_minute(producer: Producer) -> None:
        for number in range(600):
            sent.append(await producer.send(Message("orders", b"%d" % number)))
            await asyncio.sleep(0.1)

    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        work = produce(sim, send_for_a_minute)
        sim.advance(10)
        sim.brokers["broker-a"].kill()
        sim.advance(20)
        sim.brokers["broker-a"].start()
        sim.wait(work)
        assert len(sent) == 600
        assert {result.queue.broker_name for result in sent[-50:]} == {"broker-a", "broker-b"}


def test_no_send_on_a_known_route_fails_while_all_name_servers_are_down_for_a_minute() -> None:
    sent = []

    async def send_for_two_minutes(producer: Producer) -> None:
        for number in range(240):
            sent.append(await producer.send(Message("orders", b"%d" % number)))
            await asyncio.sleep(0.5)

    with SimCluster(seed=1, name_servers=2, brokers=2).run() as sim:
        create_topic(sim)
        work = produce(sim, send_for_two_minutes)
        sim.advance(20)
        for node in sim.name_servers.values():
            node.kill()
        sim.advance(60)
        for node in sim.name_servers.values():
            node.start()
        sim.wait(work)
        assert len(sent) == 240


@pytest.mark.parametrize("key", [None, "a key"])
def test_a_producer_leaves_queues_of_a_topic_created_again_with_fewer_at_once(
    key: str | None,
) -> None:
    """The polls of the route come up to 30 s later."""
    refused_s: list[float] = []
    keys = iter(range(1_000))

    async def send_for_ten_seconds(producer: Producer) -> None:
        for _ in range(200):
            try:
                await producer.send(Message("orders", b"x"), key=key and f"{key} {next(keys)}")
            except BrokerRefused:
                refused_s.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.05)

    with SimCluster().run() as sim:
        create_topic(sim)
        sending = produce(sim, send_for_ten_seconds)
        sim.advance(2)
        (broker,) = sim.brokers.values()
        sim.wait(sim.client.call(DeleteTopic(topic="orders"), address=broker.address))
        create_topic(sim, queues=1)
        sim.wait(sending)
        assert refused_s, "the topic must lose queues in which the producer sends"
        assert refused_s[-1] - refused_s[0] < 2
