"""Flow control and pauses: when a queue is not pulled, and how that is reported."""

import asyncio
from typing import NoReturn

import pytest

from sparrowmq.client.consuming import pull_loop
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.errors import NoRoute
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, send

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def test_a_slow_handler_stops_the_pulls_and_the_reason_can_be_read() -> None:
    may_end = asyncio.Event()

    async def wait(message: MessageExt) -> None:
        await may_end.wait()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(40)))
        member = Member(sim, wait, limits=FlowLimits(messages=10), pull_batch=4)
        sim.advance(3)
        queue = membership_of(member.consumer).held[QUEUE].process_queue
        assert len(queue) == 12
        assert member.consumer.waits() == {
            QUEUE: "12 messages wait for the handler; at most 10 are allowed"
        }
        may_end.set()
        sim.advance(3)
        assert len(member.got) == 40
        assert member.consumer.waits() == {}


def test_flow_control_looks_again_after_50_ms() -> None:
    async def take_long(message: MessageExt) -> None:
        starts.append(sim.now_s)
        await asyncio.sleep(1.21)

    starts: list[float] = []
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"0", b"1", b"2")
        Member(sim, take_long, limits=FlowLimits(messages=1), pull_batch=2, workers=2)
        sim.advance(5)
        assert starts[1] - starts[0] < 0.01
        assert 1.21 <= starts[2] - starts[0] < 1.27


def test_a_paused_consumer_pulls_nothing_and_reports_it() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(2)
        member.consumer.pause()
        send(sim, b"a")  # answers the pull that waits at the broker
        sim.advance(2)
        send(sim, b"b")
        sim.advance(20)
        assert member.got == [b"a"]
        assert member.consumer.waits()[QUEUE] == "the consumer is paused"
        member.consumer.resume()
        sim.advance(2)
        assert member.got == [b"a", b"b"]


def test_a_queue_whose_broker_is_away_is_pulled_again_after_3_s() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(2)
        began_s = sim.now_s
        sim.brokers["broker-a"].kill()
        sim.advance(1)
        assert "the last pull failed" in member.consumer.waits()[QUEUE]
        sim.brokers["broker-a"].start()
        send(sim, b"a")
        sim.until(lambda: member.got == [b"a"])
        assert 3 <= sim.now_s - began_s < 3.5


@pytest.mark.parametrize(
    "error",
    [NoRoute(TOPIC, "gone"), ConnectionLost("broker-a", "gone"), BodyError("nonsense")],
    ids=lambda error: type(error).__name__,
)
def test_no_failure_of_a_pull_ends_the_pull_loop(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> NoReturn:
        raise error

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(2)
        monkeypatch.setattr(pull_loop, "find_broker", fail)
        sim.advance(20)
        assert "the last pull failed" in member.consumer.waits()[QUEUE]
        monkeypatch.undo()
        send(sim, b"a")
        sim.advance(4)
        assert member.got == [b"a"]
