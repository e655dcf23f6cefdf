"""Producers whose broker refuses messages by a limit: they wait, or take another broker."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from sparrowmq.client.errors import BrokerRefused, LimitReached
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.virtual_tasks import SimTask
from tests.client.scripted import world

T = TypeVar("T")


def produce(
    sim: RunningCluster,
    work: Callable[[Producer], Coroutine[Any, Any, T]],
    name: str = "producer",
    **settings: Any,
) -> SimTask[T]:
    """Run the work with a producer on a host of its own."""

    async def on_the_host() -> T:
        client = sim.client_on(name)
        await client.start()
        async with Producer("orders-svc", client=client, **settings) as producer:
            result = await work(producer)
        await client.stop()
        return result

    return sim.host(name).start(on_the_host())


def limited_topic(sim: RunningCluster, broker: str, per_second: int) -> None:
    header = CreateTopic(
        topic="orders",
        read_queue_nums=2,
        write_queue_nums=2,
        perm=6,
        attributes=f"+sparrowmq.quota.messages={per_second}",
    )
    answer = sim.wait(sim.client.call(header, address=sim.brokers[broker].address))
    assert answer.code == ResponseCode.SUCCESS
    sim.advance(1)


def stored(sim: RunningCluster, broker: str = "broker-a") -> int:
    store = sim.brokers[broker].broker.store
    return sum(store.max_offset("orders", queue_id) for queue_id in (0, 1))


async def send_all(producer: Producer, count: int, **options: object) -> float:
    """How long so many sends take, one after the other."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(count):
        await producer.send(Message("orders", b"%d" % number), **options)  # type: ignore[arg-type]
    return loop.time() - began_s


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["in turn", "by key"])
def test_a_producer_waits_for_its_quota_and_sends_at_exactly_its_rate(
    options: dict[str, object],
) -> None:
    with SimCluster(seed=1).run() as sim:
        limited_topic(sim, "broker-a", 10)
        took_s = sim.wait(produce(sim, lambda producer: send_all(producer, 30, **options)))
        assert 1.9 <= took_s <= 2.2
        assert stored(sim) == 30


def test_another_broker_is_taken_before_anything_is_waited_for() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        limited_topic(sim, "broker-a", 1)
        limited_topic(sim, "broker-b", 1000)
        took_s = sim.wait(produce(sim, lambda producer: send_all(producer, 40)))
        assert took_s < 1
        assert (stored(sim), stored(sim, "broker-b")) == (1, 39)


def test_of_two_limited_brokers_the_one_that_is_ready_first_is_waited_for() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        limited_topic(sim, "broker-a", 1)
        limited_topic(sim, "broker-b", 10)
        took_s = sim.wait(produce(sim, lambda producer: send_all(producer, 33)))
        assert 1.7 <= took_s <= 2.5
        assert stored(sim) + stored(sim, "broker-b") == 33


def test_many_producers_share_a_quota_and_ask_no_more_often_than_it_is_worth() -> None:
    with SimCluster(seed=1).run() as sim:
        limited_topic(sim, "broker-a", 50)
        work = [
            produce(
                sim,
                lambda producer: send_all(producer, 8),
                name=f"producer-{number}",
                timeout_s=30.0,
            )
            for number in range(40)
        ]
        began_s = sim.now_s
        for each in work:
            sim.wait(each)
        took_s = sim.now_s - began_s
        assert stored(sim) == 320
        assert took_s < 9  # 5.4 s are the least
        limits = sim.broker.traffic.topics["orders"].meter
        assert limits is not None and limits.refusals.total < 40 * 20 * took_s


async def expect(kind: type[Exception], send: Callable[[], Awaitable[object]]) -> Exception:
    with pytest.raises(kind) as caught:
        await send()
    return caught.value


def test_a_wait_that_is_longer_than_the_time_left_is_not_begun() -> None:
    async def send(producer: Producer) -> tuple[Exception, float]:
        await producer.send_batch([Message("orders", b"x")] * 20)
        began_s = asyncio.get_running_loop().time()
        message = Message("orders", b"x")
        error = await expect(LimitReached, lambda: producer.send(message, timeout_s=5))
        return error, asyncio.get_running_loop().time() - began_s

    with SimCluster(seed=1).run() as sim:
        limited_topic(sim, "broker-a", 1)
        error, took_s = sim.wait(produce(sim, send))
        assert isinstance(error, LimitReached)
        assert error.code == ResponseCode.FLOW_CONTROL
        assert 19 < error.retry_after_s <= 20
        assert took_s < 0.5
        assert "topic orders takes 1 messages/s" in str(error)


def test_without_retries_the_refusal_is_raised_at_once() -> None:
    async def send(producer: Producer) -> Exception:
        await producer.send(Message("orders", b"x"))
        return await expect(LimitReached, lambda: producer.send(Message("orders", b"x")))

    with SimCluster(seed=1).run() as sim:
        limited_topic(sim, "broker-a", 1)
        began_s = sim.now_s
        error = sim.wait(produce(sim, send, retries=0))
        assert isinstance(error, LimitReached)
        assert sim.now_s - began_s < 0.5


def test_a_limit_does_not_make_a_broker_one_to_avoid() -> None:
    async def send_evenly(producer: Producer) -> None:
        for _ in range(60):
            await producer.send(Message("orders", b"x"))
            await asyncio.sleep(0.05)

    with SimCluster(seed=1, brokers=2).run() as sim:
        limited_topic(sim, "broker-a", 5)
        limited_topic(sim, "broker-b", 1000)
        sim.wait(produce(sim, send_evenly, avoid_faults=True))
        assert stored(sim) >= 15  # 5 a second, and 5 at once


def test_flow_control_without_a_time_is_raised_at_once_as_in_java() -> None:
    async def send(producer: Producer) -> Exception:
        return await expect(BrokerRefused, lambda: producer.send(Message("orders", b"x")))

    with world() as w:
        w.brokers["a"].script = [ResponseCode.FLOW_CONTROL]
        error = w.produce(send)
        assert not isinstance(error, LimitReached)
        assert w.attempts == ["A1"]


def test_a_chosen_queue_is_waited_for() -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    with SimCluster(seed=1, brokers=2).run() as sim:
        limited_topic(sim, "broker-a", 10)
        limited_topic(sim, "broker-b", 1000)
        sim.wait(produce(sim, lambda producer: send_all(producer, 15, queue=queue)))
        assert (stored(sim), stored(sim, "broker-b")) == (15, 0)
