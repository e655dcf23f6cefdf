"""Producers whose broker refuses messages because of a limit: they wait, or use another broker."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from sparrowmq.broker.traffic.bucket import Bucket
from sparrowmq.client.errors import BrokerRefused, LimitReached, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.virtual_tasks import SimTask
from tests.client.scripted import Answer, World, world

T = TypeVar("T")


def produce(
    sim: RunningCluster,
    work: Callable[[Producer], Coroutine[Any, Any, T]],
    name: str = "producer",
    **settings: Any,
) -> SimTask[T]:
    """Run the work with a producer on its own host."""

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
    """How long `count` sends take, one after the other."""
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


def test_a_producer_over_quota_tries_another_broker_before_it_waits() -> None:
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


def test_many_producers_share_a_quota_without_excess_requests() -> None:
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


def test_a_producer_does_not_start_a_wait_longer_than_the_time_left() -> None:
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


# ---- many sends at once: they share what the broker said


async def send_at_once(producer: Producer, count: int, **options: Any) -> list[float | Exception]:
    """For each send, in the order in which they begin: how long it took, or what it raised."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    async def send(number: int) -> float | Exception:
        try:
            await producer.send(Message("orders", b"%d" % number), **options)
        except LimitReached as error:
            return error
        return loop.time() - began_s

    return await asyncio.gather(*(send(number) for number in range(count)))


WAYS = pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {}),
        ({}, {"key": "k"}),
        ({"idempotent": True}, {}),
        ({"idempotent": True}, {"key": "k"}),
    ],
    ids=["in turn", "by key", "idempotent", "idempotent by key"],
)


@WAYS
def test_sends_that_wait_for_one_quota_share_the_wait_and_pass_in_their_order(
    settings: dict[str, Any], options: dict[str, Any]
) -> None:
    with world("a") as w:
        broker = w.brokers["a"]
        broker.dedup, broker.quota = "10m", Bucket(10, 0)
        took_s = w.produce(lambda p: send_at_once(p, 300, **options), timeout_s=40, **settings)
        assert broker.taken == [b"%d" % number for number in range(300)]
        assert max(took_s) < 29.2  # ten at once, then ten a second
        # All ask at first; then one a wait is taken, and the next one is refused
        assert len(broker.sent) <= 300 + 2 * 290


def test_sends_queue_up_after_waiting_ones_without_asking_the_broker() -> None:
    async def send(producer: Producer) -> None:
        async with asyncio.TaskGroup() as sends:
            sends.create_task(send_at_once(producer, 20))
            await asyncio.sleep(0.25)
            assert len(broker.sent) == 20 + 4  # two waits are over: one taken, one refused
            later = [asyncio.ensure_future(send_at_once(producer, 100)) for _ in range(3)]
            await asyncio.sleep(0.04)
            assert len(broker.sent) == 24
            for each in later:
                await each

    with world("a") as w:
        broker = w.brokers["a"]
        broker.quota = Bucket(10, 0)
        w.produce(send, timeout_s=60)
        assert broker.taken[:20] == [b"%d" % number for number in range(20)]
        assert len(broker.taken) == 320


def test_a_send_too_far_back_in_the_line_fails_in_time_without_a_request() -> None:
    with world("a") as w:
        broker = w.brokers["a"]
        broker.quota = Bucket(10, 0)
        took_s = w.produce(lambda p: send_at_once(p, 100, timeout_s=3))
        assert [type(each) for each in took_s] == [float] * 39 + [LimitReached] * 61
        assert len({id(each) for each in took_s}) == 100
        assert len(broker.sent) <= 100 + 2 * 30
        assert w.sim.now_s - w.start_s < 3.1


def test_a_large_quota_is_used_up_although_one_asks_first() -> None:
    with SimCluster(seed=1).run() as sim:
        limited_topic(sim, "broker-a", 1000)
        took_s = sim.wait(produce(sim, lambda p: send_at_once(p, 3000, timeout_s=5)))
        assert stored(sim) == 3000
        assert all(isinstance(each, float) and each < 2.1 for each in took_s)
        limits = sim.broker.traffic.topics["orders"].meter
        assert limits is not None and limits.refusals.total < 2000 + 2000


def test_waiting_sends_use_the_quota_of_every_broker() -> None:
    with world("ab") as w:
        w.brokers["a"].quota, w.brokers["b"].quota = Bucket(10, 0), Bucket(1, 0)
        took_s = w.produce(lambda p: send_at_once(p, 60), timeout_s=10)
        assert max(took_s) < 4.6  # eleven at once, then eleven a second
        assert len(w.brokers["b"].taken) >= 5
        assert len(w.attempts) <= 60 + 60 + 3 * 49


def test_a_send_that_is_cancelled_in_the_line_lets_the_next_one_pass() -> None:
    async def send(producer: Producer) -> None:
        sends = [
            asyncio.ensure_future(producer.send(Message("orders", b"%d" % number)))
            for number in range(16)
        ]
        await asyncio.sleep(0.05)
        for each in sends[10:14]:
            each.cancel()
        broker.script = ["silent"]
        await asyncio.sleep(0.1)
        sends[14].cancel()  # it has asked and waits for an answer
        await asyncio.gather(*sends, return_exceptions=True)

    with world("a") as w:
        broker = w.brokers["a"]
        broker.quota = Bucket(10, 0)
        w.produce(send)
        assert broker.taken == [b"%d" % number for number in (*range(10), 15)]


def test_a_send_cancelled_at_its_turn_lets_the_next_one_pass() -> None:
    async def send(producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        sends = [
            asyncio.ensure_future(producer.send(Message("orders", b"%d" % number)))
            for number in range(13)
        ]
        opens_s = loop.time() + 0.1
        await asyncio.sleep(0.05)
        loop.call_at(opens_s, sends[10].cancel)
        await asyncio.gather(*sends, return_exceptions=True)
        assert sends[10].cancelled()

    with world("a") as w:
        broker = w.brokers["a"]
        broker.quota = Bucket(10, 0)
        w.produce(send)
        assert broker.taken == [b"%d" % number for number in (*range(10), 11, 12)]


def test_a_broker_that_dies_while_sends_wait_delays_no_send() -> None:
    async def send(producer: Producer) -> None:
        waiting = asyncio.ensure_future(send_at_once(producer, 30))
        await asyncio.sleep(0.05)
        w.sim.host("broker-a").kill()
        await waiting

    with world("ab") as w:
        w.brokers["a"].quota, w.brokers["b"].quota = Bucket(10, 0), Bucket(10, 0)
        w.produce(send, timeout_s=10)
        assert len(w.brokers["a"].taken) + len(w.brokers["b"].taken) == 30


def test_a_quota_refusal_does_not_count_as_a_departing_master() -> None:
    """What is lost after a refusal by a limit may be stored, and is not sent to a successor."""

    async def send(producer: Producer) -> tuple[SendFailed, float]:
        await producer.send(Message("orders", b"1"), key="k")
        began_s = asyncio.get_running_loop().time()
        waits = asyncio.ensure_future(
            expect(SendFailed, lambda: producer.send(Message("orders", b"2"), key="k"))
        )
        await asyncio.sleep(0.5)
        w.brokers["a"].script = ["hang up"]  # when its turn has come
        error = await waits
        assert isinstance(error, SendFailed)
        return error, asyncio.get_running_loop().time() - began_s

    with world("a") as w:
        w.brokers["a"].quota = Bucket(1, 0)
        error, took_s = w.produce(send)
        assert error.may_be_stored
        assert 1 <= took_s < 1.1
        assert len(w.attempts) == 3


class Storm:
    """Sends to two brokers whose quotas change, that fail, and callers that lose patience."""

    def __init__(self, w: World, seed: int) -> None:
        self.w = w
        self.rng = random.Random(seed)
        self.sends: list[asyncio.Future[bool]] = []

    async def send(self, producer: Producer, number: int) -> bool:
        """Whether it was stored. It has to end in time, however it ends."""
        key, timeout_s = self.rng.choice([None, "k", "other"]), self.rng.choice([0.3, 1.0, 3.0])
        until_s = self.w.sim.now_s + timeout_s
        try:
            await producer.send(Message("orders", b"%d" % number), key=key, timeout_s=timeout_s)
        except (LimitReached, SendFailed, BrokerRefused):
            return False
        finally:
            assert self.w.sim.now_s <= until_s + 0.01
        return True

    async def disturb(self) -> None:
        rng = self.rng
        for _ in range(60):
            await asyncio.sleep(rng.choice([0.0, 0.02, 0.3]))
            broker, now_ms = self.w.brokers[rng.choice("ab")], round(self.w.sim.now_s * 1000)
            match rng.randrange(3):
                case 0:
                    answers: list[Answer] = ["silent", "hang up", ResponseCode.SYSTEM_BUSY]
                    broker.script = rng.sample(answers, 2)
                case 1:
                    broker.quota = rng.choice([None, Bucket(1, now_ms), Bucket(50, now_ms)])
                case _:
                    rng.choice(self.sends).cancel()

    async def rage(self, producer: Producer) -> None:
        for broker in self.w.brokers.values():
            broker.dedup, broker.quota = "10m", Bucket(20, 0)
        async with asyncio.TaskGroup() as tasks:
            for number in range(400):
                self.sends.append(tasks.create_task(self.send(producer, number)))
                if number == 0:
                    tasks.create_task(self.disturb())
                if number % 20 == 0:
                    await asyncio.sleep(self.rng.choice([0.0, 0.1, 0.5]))
        for broker in self.w.brokers.values():
            broker.script, broker.quota = [], Bucket(10, round(self.w.sim.now_s * 1000))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("settings", [{}, {"idempotent": True}, {"avoid_faults": True}], ids=str)
def test_every_send_ends_in_time_even_if_earlier_ones_fail(
    settings: dict[str, Any], seed: int
) -> None:
    async def work(producer: Producer) -> list[float | Exception]:
        await storm.rage(producer)
        assert {each.result() for each in storm.sends if not each.cancelled()} == {True, False}
        await asyncio.sleep(3)  # nothing was refused for longer
        in_turn = send_at_once(producer, 50, timeout_s=10)
        by_key = send_at_once(producer, 50, key="k", timeout_s=12)
        return [each for found in await asyncio.gather(in_turn, by_key) for each in found]

    with world("ab", seed=seed) as w:
        storm = Storm(w, seed)
        assert all(isinstance(each, float) for each in w.produce(work, **settings))
