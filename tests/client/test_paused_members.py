"""A member that was paused for a while notices before it works, polls or commits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.errors import QueueLost
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.session_keepalive import send_keepalive
from sparrowmq.client.sessions import Session
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import CallTimedOut
from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import (
    GROUP,
    TOPIC,
    Member,
    create_topic,
    miss_progress_of_others,
    owned,
    send,
    stored_offset,
)
from tests.client.two_members import both_ways

T = TypeVar("T")


class Handler:
    """Takes 2 s for a message, for all members; counts handlers that work on one queue at once."""

    def __init__(self) -> None:
        self.order: list[bytes] = []
        self.overlaps = 0
        self._running = 0

    async def handle(self, message: MessageExt) -> None:
        self.order.append(message.body)
        self._running += 1
        self.overlaps += self._running > 1
        try:
            await asyncio.sleep(2)
        finally:
            self._running -= 1


def stopped_and_continued(sim: RunningCluster, handler: Handler, *, orderly: bool) -> Member:
    """A member freezes for 15 s in the middle of a message; another one takes its queue."""
    create_topic(sim)
    send(sim, *(b"%d" % number for number in range(40)))
    first = Member(sim, handler.handle, name="a", orderly=orderly, workers=1)
    sim.until(lambda: len(handler.order) == 3)
    first.host.pause()
    second = Member(sim, handler.handle, name="b", orderly=orderly, workers=1)
    sim.until(lambda: owned(second) == 1)
    sim.advance(15)
    handler.overlaps = 0
    handler.order.clear()
    first.host.resume()
    return second


@both_ways
def test_a_frozen_member_does_not_handle_messages_that_others_took_over(orderly: bool) -> None:
    handler = Handler()
    with SimCluster(seed=1).run() as sim:
        stopped_and_continued(sim, handler, orderly=orderly)
        sim.advance(10)
        assert handler.overlaps == 0
        assert handler.order == sorted(handler.order, key=int)


@both_ways
def test_without_that_doubt_two_members_work_on_one_queue(
    orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueOwnership, "is_sure", lambda self, held: True)
    handler = Handler()
    with SimCluster(seed=1).run() as sim:
        stopped_and_continued(sim, handler, orderly=orderly)
        sim.advance(10)
        assert handler.overlaps > 0


@both_ways
def test_late_results_of_a_frozen_member_move_no_progress(orderly: bool) -> None:
    handler = Handler()
    commits: list[int] = []
    with SimCluster(seed=1).run() as sim:
        stopped_and_continued(sim, handler, orderly=orderly)
        offsets = sim.broker.offsets
        before = stored_offset(sim)
        for _ in range(200):
            sim.advance(0.1)
            commits.append(offsets.get(GROUP, TOPIC, 0) or 0)
        assert commits == sorted(commits)
        assert commits[0] >= before > 2
        assert commits[-1] > before


@pytest.mark.parametrize("still_s", [2, 3, 4])
def test_messages_pulled_before_a_short_freeze_of_the_member_are_handled(
    still_s: float,
) -> None:
    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(1)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        bodies = [b"%d" % number for number in range(5)]
        send(sim, *bodies)
        member = Member(sim, handle, workers=1)
        sim.until(lambda: member.got == bodies[:2])
        member.host.pause()
        sim.advance(still_s)
        member.host.resume()
        sim.advance(10)
        assert member.got == bodies


@both_ways
def test_a_frozen_member_that_stops_leaves_the_progress_of_others_alone(
    orderly: bool,
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        first = Member(sim, name="a", orderly=orderly)
        sim.advance(2)
        send(sim, b"0")
        sim.until(lambda: first.got == [b"0"])
        first.host.pause()
        second = Member(sim, name="b", orderly=orderly)
        sim.until(lambda: owned(second) == 1)
        send(sim, b"1", b"2")
        sim.advance(70)
        assert stored_offset(sim) == 3
        first.leave_soon()
        first.host.resume()
        sim.wait(first.task)
        assert stored_offset(sim) == 3


def test_progress_of_others_counts_after_a_session_was_lost() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(10)))
        member = Member(sim, Handler().handle, workers=1)
        sim.until(lambda: len(member.got) == 2)
        miss_progress_of_others(sim, member, 10)
        assert member.got[2:] == [b"9"]
        assert stored_offset(sim) == 10


class NobodyAnswers:
    """The part of `Peers` that a keep-alive uses."""

    async def call(self, address: str, header: Heartbeat, *, timeout_s: float) -> Response:
        raise CallTimedOut(address, type(header).__name__, timeout_s)


@pytest.mark.parametrize(("passed_s", "is_unreachable"), [(3.0, True), (15.0, False)])
def test_who_slept_over_an_answer_does_not_take_the_broker_for_unreachable(
    passed_s: float, is_unreachable: bool
) -> None:
    session = Session("10.0.0.3:10911", "name", life_s=4.0, confirmed_s=0.0)
    times = iter([0.0, passed_s])
    peers: Any = NobodyAnswers()
    asyncio.run(send_keepalive(peers, session, lambda: next(times), lambda ended: None))
    assert session.is_unreachable is is_unreachable


class Reader:
    """A lite pull consumer on its own host, controlled by the test."""

    def __init__(self, sim: RunningCluster, name: str) -> None:
        self.sim, self.host = sim, sim.host(name)
        self.consumer = LitePullConsumer(
            GROUP,
            {TOPIC: "*"},
            client=sim.client_on(name, routes),
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            batch=1,
        )
        self.do(self._start())

    async def _start(self) -> None:
        await core_of_consumer(self.consumer).start()
        await self.consumer.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.sim.run(work, on=self.host)

    def poll(self) -> list[bytes]:
        return [message.body for message in self.do(self.consumer.poll())]


def test_a_frozen_reader_polls_and_commits_nothing_that_others_took_over() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"0", b"1", b"2", b"3")
        first = Reader(sim, "a")
        assert first.poll() == [b"0"]
        sim.advance(1)
        first.host.pause()
        second = Reader(sim, "b")
        sim.advance(6)
        assert [second.poll() for _ in range(3)] == [[b"0"], [b"1"], [b"2"]]
        second.do(second.consumer.commit())
        first.host.resume()
        with pytest.raises(QueueLost, match="went to another member"):
            first.do(first.consumer.commit())
        assert stored_offset(sim) == 3
        assert first.poll() == [b"3"]  # it has its share again, from where the other one ended
