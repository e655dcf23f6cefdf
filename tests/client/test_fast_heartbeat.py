"""A host that vanished or stands still is missed within 5 s, and nobody else is."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from sparrowmq.broker.sessions import Sessions
from sparrowmq.client.beats import beat
from sparrowmq.client.consumer_calls import routes
from sparrowmq.client.errors import QueueLost
from sparrowmq.client.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.ownership import Ownership
from sparrowmq.client.producer import Producer
from sparrowmq.client.push_consumer import PushConsumer
from sparrowmq.client.sessions import Session
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import CallTimedOut
from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing import Cluster
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset

T = TypeVar("T")
both_ways = pytest.mark.parametrize("orderly", [False, True])


def owned(member: Member) -> int:
    """How many queues of the topic it holds."""
    return sum(queue.topic == TOPIC for queue in member.consumer.assignment())


def two_members(
    sim: RunningCluster,
    handle: Callable[[MessageExt], Awaitable[None]] | None = None,
    *,
    orderly: bool,
) -> tuple[Member, Member]:
    """Each with two of four queues."""
    create_topic(sim, queues=4)
    first = Member(sim, handle, name="a", orderly=orderly)
    second = Member(sim, handle, name="b", orderly=orderly)
    sim.until(lambda: (owned(first), owned(second)) == (2, 2))
    sim.advance(5)
    return first, second


@both_ways
def test_queues_of_a_vanished_host_have_a_new_owner_within_5_s(orderly: bool) -> None:
    assert all(taken_over_after_s(moment / 7, orderly=orderly) < 5 for moment in range(8))


def taken_over_after_s(after_s: float, *, orderly: bool) -> float:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=orderly)
        sim.advance(after_s)
        second.host.power_off()
        vanished_s = sim.now_s
        sim.until(lambda: owned(first) == 4)
        return sim.now_s - vanished_s


@both_ways
def test_the_messages_of_a_vanished_host_are_consumed_by_the_others(orderly: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=orderly)
        second.host.power_off()
        for queue_id in range(4):
            send(sim, b"%d" % queue_id, queue_id=queue_id)
        sim.advance(6)
        assert sorted(first.got) == [b"0", b"1", b"2", b"3"]


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
    """A member stands still for 15 s in the middle of a message; another one takes its queue."""
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
def test_a_member_that_stood_still_does_not_work_on_what_others_took_over(orderly: bool) -> None:
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
    monkeypatch.setattr(Ownership, "is_sure", lambda self, held: True)
    handler = Handler()
    with SimCluster(seed=1).run() as sim:
        stopped_and_continued(sim, handler, orderly=orderly)
        sim.advance(10)
        assert handler.overlaps > 0


@both_ways
def test_late_results_of_a_member_that_stood_still_move_no_progress(orderly: bool) -> None:
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


@both_ways
def test_a_member_that_was_out_of_touch_for_2_s_goes_on_as_if_nothing_was(orderly: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=orderly)
        for queue_id in range(4):
            send(sim, *(b"%d" % number for number in range(queue_id, 40, 4)), queue_id=queue_id)
        sim.paths.partition([second.host], [sim.host("broker-a")])
        sim.advance(2)
        sim.paths.heal()
        sim.advance(20)
        assert sorted(first.got + second.got, key=int) == [b"%d" % number for number in range(40)]
        assert (owned(first), owned(second)) == (2, 2)


def test_a_broker_that_stood_still_does_not_blame_its_members() -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=False)
        sessions = sim.broker.sessions
        assert len(sessions) == 2
        names = set(sessions._by_name)
        sim.host("broker-a").pause()
        sim.advance(30)
        sim.host("broker-a").resume()
        sim.advance(10)
        assert set(sessions._by_name) == names
        assert (owned(first), owned(second)) == (2, 2)


def test_a_group_that_lost_its_connections_consumes_nothing_twice() -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=False)
        for round_number in range(5):
            for queue_id in range(4):
                send(sim, b"%d %d" % (round_number, queue_id), queue_id=queue_id)
            sim.advance(0.5)
            for connection in tuple(sim.broker.sessions._by_connection):
                connection.abort()
            sim.advance(3)
        sim.advance(10)
        assert len(first.got + second.got) == len(set(first.got + second.got)) == 20


def test_a_broker_without_sessions_gets_no_beats() -> None:
    beats: dict[bool, int] = {}
    for has_sessions in (True, False):
        with SimCluster(seed=1, session_timeout_s=4.0 if has_sessions else 0.0).run() as sim:
            create_topic(sim)
            member = Member(sim)
            sim.advance(5)
            connection = next(iter(sim.broker.consumers.group(GROUP).members))  # type: ignore[union-attr]
            before = connection.frames_read
            sim.advance(60)
            beats[has_sessions] = connection.frames_read - before
            assert owned(member) == 1
    # Without: pulls that waited 15 s, heartbeats and renewals
    assert beats[True] > 60 > 30 > beats[False]


def test_a_client_may_do_without() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        async def live() -> None:
            client = sim.client_on("quiet")
            client.config = replace(client.config, fast_heartbeat=False)
            await client.start()
            async with PushConsumer(GROUP, {TOPIC: "*"}, client=client) as consumer:
                await consumer.start(lambda messages: None)
                await asyncio.sleep(2)
                assert len(sim.broker.sessions) == 0
            await client.stop()

        sim.run(live(), on=sim.host("quiet"))


def test_a_producer_keeps_the_connection_when_the_consumer_beside_it_has_left() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        async def live() -> None:
            client = sim.client_on("shared")
            await client.start()
            async with Producer("shop", client=client) as producer:
                await producer.send(Message(TOPIC, b"1"))
                async with PushConsumer(GROUP, {TOPIC: "*"}, client=client) as consumer:
                    await consumer.start(lambda messages: None)
                    await asyncio.sleep(3)
                    assert len(sim.broker.sessions) == 1
                connection = await client.peers.connect(sim.brokers["broker-a"].address)
                await asyncio.sleep(20)
                assert connection.is_open
                await producer.send(Message(TOPIC, b"2"))
            await client.stop()

        sim.run(live(), on=sim.host("shared"))


def test_progress_of_others_counts_after_a_session_was_lost() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(10)))
        member = Member(sim, Handler().handle, workers=1)
        sim.until(lambda: len(member.got) == 2)
        member.host.pause()
        sim.advance(10)
        # Somebody had the queue meanwhile, and is gone again
        commit = UpdateConsumerOffset(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=9
        )
        sim.wait(sim.client.call(commit))
        member.host.resume()
        sim.advance(30)
        assert member.got[2:] == [b"9"]
        assert stored_offset(sim) == 10


class NobodyAnswers:
    """The part of `Peers` that a beat uses."""

    async def call(self, address: str, header: Heartbeat, *, timeout_s: float) -> Response:
        raise CallTimedOut(address, type(header).__name__, timeout_s)


@pytest.mark.parametrize(("passed_s", "is_unreachable"), [(3.0, True), (15.0, False)])
def test_who_slept_over_an_answer_does_not_take_the_broker_for_unreachable(
    passed_s: float, is_unreachable: bool
) -> None:
    session = Session("10.0.0.3:10911", "name", life_s=4.0, confirmed_s=0.0)
    times = iter([0.0, passed_s])
    peers: Any = NobodyAnswers()
    asyncio.run(beat(peers, session, lambda: next(times), lambda ended: None))
    assert session.is_unreachable is is_unreachable


class Reader:
    """A lite pull consumer on a host of its own that does what it is told."""

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
        await self.consumer.client.start()
        await self.consumer.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.sim.run(work, on=self.host)

    def poll(self) -> list[bytes]:
        return [message.body for message in self.do(self.consumer.poll())]


def test_a_reader_that_stood_still_polls_and_commits_nothing_that_others_took_over() -> None:
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


@pytest.mark.sparrowmq(session_timeout_s=2.0)
def test_a_handler_that_stops_the_loop_does_not_stop_the_beats(
    sparrowmq_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    beaten = threading.Semaphore(0)
    answer = Sessions.beat

    def count(self: Sessions, name: str) -> bool:
        beaten.release()
        return answer(self, name)

    monkeypatch.setattr(Sessions, "beat", count)
    servers = sparrowmq_cluster.name_server
    counted: list[bool] = []

    async def consume() -> None:
        done = asyncio.Event()

        async def handle(messages: Sequence[MessageExt]) -> None:
            # Keeps the loop for itself until beats of more than a session's life were sent.
            counted.extend(beaten.acquire(timeout=60) for _ in range(6))
            done.set()

        async with Producer("shop", name_servers=servers) as producer:
            await producer.send(Message(TOPIC, b"1"))
        first = ConsumeFromWhere.FIRST_OFFSET
        async with PushConsumer(
            GROUP, {TOPIC: "*"}, name_servers=servers, from_where=first
        ) as consumer:
            await consumer.start(handle)
            await done.wait()

    asyncio.run(consume())
    assert counted == [True] * 6
