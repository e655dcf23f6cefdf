"""Members that live through a power cut, or a deletion, which made their queues shorter, and
members of broadcasting groups that resume from their own files afterwards.

A queue that lost its end gives the same offsets to new messages. A member that stands past that
end must not skip them, whoever wrote the member: ours say in which epoch of the log they learned
their position; positions of Java and Go clients count only if this connection was sent them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import SMALL_STORE, RunningCluster, SimCluster

TOPIC = "orders"
NEVER_S = 3000.0
KINDS = ("push", "ordered", "broadcasting", "lite")


class Member:
    """A consumer of one kind that lives until the end of the simulation, unless it is ended."""

    def __init__(
        self,
        sim: RunningCluster,
        kind: str,
        tmp_path: Any,
        from_where: ConsumeFromWhere = ConsumeFromWhere.FIRST_OFFSET,
    ) -> None:
        self._from_where = from_where
        self.handled: list[bytes] = []
        self._sim = sim
        self._kind = kind
        self._dir = tmp_path
        self._ready = asyncio.Event()
        self.may_handle = asyncio.Event()
        self.may_handle.set()
        self._leaving = asyncio.Event()
        self._task = sim.host(kind).start(self._live(), name=kind)
        sim.until(self._ready.is_set)

    def stop(self) -> None:
        """Leave in order; a lite member does so after its poll."""
        self._leaving.set()
        self._sim.wait(self._task)

    def kill(self) -> None:
        """It keeps what it has stored, which it does every 5 s."""
        self._sim.host(self._kind).kill()

    async def _live(self) -> None:
        client = self._sim.client_on(self._kind, routes)
        await client.start()
        try:
            await self._consume(client)
        finally:
            await client.stop()

    async def _consume(self, client: Client) -> None:
        first = self._from_where
        if self._kind == "lite":
            async with LitePullConsumer(self._kind, client=client, from_where=first) as lite:
                await lite.subscribe(TOPIC)
                self._ready.set()
                while not self._leaving.is_set():
                    await self.may_handle.wait()
                    self._note(await lite.poll(5.0))
            return
        model = MessageModel.BROADCASTING if self._kind == "broadcasting" else None
        more: dict[str, Any] = {"model": model, "offsets_dir": self._dir} if model else {}
        if first is ConsumeFromWhere.TIMESTAMP:
            more["from_timestamp_ms"] = self._sim.clock()
        push = PushConsumer(
            self._kind,
            {TOPIC: "*"},
            client=client,
            from_where=first,
            orderly=self._kind == "ordered",
            threads=InlineWorkers(),
            **more,
        )
        async with push:
            await push.start(self._handle)
            self._ready.set()
            await self._leaving.wait()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        await self.may_handle.wait()
        self._note(messages)

    def _note(self, messages: Sequence[MessageExt]) -> None:
        self.handled += [message.body for message in messages]


def send(sim: RunningCluster, client: str, bodies: Sequence[bytes]) -> None:
    sender = sim.clients.get(client) or sim.new_client(client)
    for body in bodies:
        sim.wait(sender.send(TOPIC, body))


def bodies(name: str, count: int) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(count)]


def create_topic(sim: RunningCluster, client: str) -> None:
    header = CreateTopic(topic=TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6)
    asking = sim.clients.get(client) or sim.new_client(client)
    assert sim.wait(asking.call(header)).code == 0


@pytest.mark.parametrize("growth", [-1, 0, 10], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_live_member_misses_nothing_that_was_acknowledged_after_a_power_cut(
    kind: str, growth: int, tmp_path: Any
) -> None:
    with SimCluster(seed=1, flush_interval_s=NEVER_S).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        kept = bodies("kept", 4)
        send(sim, "before", kept)
        sim.wait(node.host.start(node.broker.durability.flush()))
        member = Member(sim, kind, tmp_path)
        sim.advance(30)
        lost = bodies("lost", 6)
        send(sim, "before", lost)
        sim.advance(10)
        assert set(member.handled) == {*kept, *lost}
        node.lose_power()
        node.start()
        left = sim.broker.store.max_offset(TOPIC, 0)
        assert left < 9
        fresh = bodies("new", 10 + growth - left)
        send(sim, "after", fresh)
        sim.advance(120)
        assert set(fresh) <= set(member.handled)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_that_are_pulled_and_not_handled_when_the_power_goes_are_not_lost(
    kind: str, tmp_path: Any
) -> None:
    """A member that is sent back drops what it has pulled: what is kept of it comes again."""
    with SimCluster(seed=1, flush_interval_s=NEVER_S).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        member = Member(sim, kind, tmp_path)
        sim.advance(30)
        member.may_handle.clear()
        sim.advance(6)  # a poll of a lite member that waits is over
        kept = bodies("kept", 8)
        send(sim, "before", kept)
        sim.wait(node.host.start(node.broker.durability.flush()))
        send(sim, "before", bodies("lost", 6))
        sim.advance(2)
        node.lose_power()
        node.start()
        fresh = bodies("new", 20)
        send(sim, "after", fresh)
        sim.advance(3)
        member.may_handle.set()
        sim.advance(120)
        assert {*kept, *fresh} <= set(member.handled)


def send_what_no_sync_covers(sim: RunningCluster, count: int) -> None:
    """Stored when this returns, and acknowledged if sends do not wait for the disk."""
    node = sim.brokers["broker-a"]
    node.sync_s = NEVER_S
    end = node.broker.store.max_offset(TOPIC, 0) + count
    doomed = sim.new_client("doomed")
    for body in bodies("lost", count):
        doomed.send(TOPIC, body)
    sim.until(lambda: node.broker.store.max_offset(TOPIC, 0) == end)
    doomed.host.kill()


@pytest.mark.slow
@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_sleeps_through_two_restarts_misses_nothing(
    kind: str, flush: Flush, tmp_path: Any
) -> None:
    with SimCluster(seed=1, flush=flush, flush_interval_s=NEVER_S).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        kept = bodies("kept", 4)
        send(sim, "before", kept)
        sim.wait(node.host.start(node.broker.durability.flush()))
        member = Member(sim, kind, tmp_path)
        sim.advance(30)
        send_what_no_sync_covers(sim, 6)
        sim.advance(10)
        assert len(member.handled) == (10 if flush is Flush.ASYNC else 4)
        sim.host(kind).pause()
        node.lose_power()
        node.sync_s = 0.0
        node.start()
        fresh = bodies("new", 20)
        send(sim, "after", fresh)
        sim.wait(node.host.start(node.broker.durability.flush()))
        node.restart()
        sim.host(kind).resume()
        sim.advance(240)
        assert {*kept, *fresh} <= set(member.handled)


def test_a_group_that_is_new_after_a_power_cut_gets_no_old_messages(tmp_path: Any) -> None:
    with SimCluster(seed=1, flush_interval_s=NEVER_S).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        send(sim, "before", bodies("kept", 4))
        sim.wait(node.host.start(node.broker.durability.flush()))
        send(sim, "before", bodies("lost", 6))
        node.lose_power()
        node.start()
        send(sim, "after", bodies("old", 5))
        sim.advance(1)
        member = Member(sim, "push", tmp_path, from_where=ConsumeFromWhere.TIMESTAMP)
        sim.advance(30)
        send(sim, "after", bodies("new", 5))
        sim.advance(60)
        assert member.handled == bodies("new", 5)


@pytest.mark.parametrize("kind", KINDS)
def test_with_synchronous_flush_nothing_is_delivered_before_it_is_durable(
    kind: str, tmp_path: Any
) -> None:
    with SimCluster(seed=1, flush=Flush.SYNC).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        node.sync_s = 0.2
        member = Member(sim, kind, tmp_path)
        sim.advance(30)
        sending = [sim.clients["before"].send(TOPIC, body) for body in bodies("kept", 50)]
        sim.until(lambda: node.broker.store.max_offset(TOPIC, 0) == 50)
        assert not member.handled
        assert sim.wait(sim.clients["before"].pull(TOPIC)).bodies == []
        for sent in sending:
            sim.wait(sent)
        sim.advance(1)
        assert len(member.handled) == 50


def test_with_synchronous_flush_a_power_cut_takes_nothing_that_a_member_has_seen(
    tmp_path: Any,
) -> None:
    with SimCluster(seed=1, flush=Flush.SYNC).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        member = Member(sim, "push", tmp_path)
        send(sim, "before", bodies("kept", 4))
        node.sync_s = NEVER_S
        doomed = sim.new_client("doomed")
        for body in bodies("unsynced", 6):
            doomed.send(TOPIC, body)
        sim.until(lambda: node.broker.store.max_offset(TOPIC, 0) == 10)
        doomed.host.kill()
        sim.advance(5)
        node.lose_power()
        node.sync_s = 0.0
        node.start()
        fresh = bodies("new", 6)
        send(sim, "after", fresh)
        sim.advance(120)
        assert set(member.handled) <= {*bodies("kept", 4), *bodies("unsynced", 6), *fresh}
        assert {*bodies("kept", 4), *fresh} <= set(member.handled)


@pytest.mark.parametrize("wait", ["true", "false"])
def test_a_message_that_no_sender_waits_for_is_also_visible_at_once(
    wait: str, tmp_path: Any
) -> None:
    with SimCluster(seed=1, flush=Flush.SYNC, flush_interval_s=NEVER_S).run() as sim:
        create_topic(sim, "before")
        member = Member(sim, "push", tmp_path)
        sim.advance(30)
        sim.wait(sim.clients["before"].send(TOPIC, b"quick", WAIT=wait))
        sim.advance(1)
        assert member.handled == [b"quick"]


def test_a_consumer_that_is_far_ahead_of_the_disk_waits_for_it(tmp_path: Any) -> None:
    window = replace(SMALL_STORE, unsynced_window=10)
    with SimCluster(seed=1, flush_interval_s=NEVER_S, store=window).run() as sim:
        create_topic(sim, "before")
        member = Member(sim, "push", tmp_path)
        sim.advance(30)
        node = sim.brokers["broker-a"]
        node.sync_s = 20.0
        send(sim, "before", bodies("sent", 25))
        sim.advance(1)
        assert len(member.handled) == 10
        sim.advance(40)
        assert len(member.handled) == 25


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5, 9], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_deleted_and_created_again_is_consumed_from_its_beginning(
    kind: str, count: int, tmp_path: Any
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, "before")
        member = Member(sim, kind, tmp_path)
        old = bodies("old", 5)
        send(sim, "before", old)
        sim.advance(30)
        assert set(member.handled) == set(old)
        assert sim.wait(sim.clients["before"].call(DeleteTopic(topic=TOPIC))).code == 0
        create_topic(sim, "before")
        fresh = bodies("new", count)
        send(sim, "before", fresh)
        sim.advance(120)
        assert set(fresh) <= set(member.handled)


# ---- members that are down meanwhile: what they know is in their own files


ENDS = {"stopped": Member.stop, "killed": Member.kill}
SLOW = pytest.mark.slow


@pytest.mark.parametrize("restarts", [1, pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("growth", [-1, 0, 10], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("end", ["killed", pytest.param("stopped", marks=SLOW)])
def test_a_broadcasting_member_that_is_down_during_a_power_cut_gets_exactly_what_is_new(
    end: str, growth: int, restarts: int, tmp_path: Any
) -> None:
    with SimCluster(seed=1, flush_interval_s=NEVER_S).run() as sim:
        create_topic(sim, "before")
        node = sim.brokers["broker-a"]
        kept = bodies("kept", 4)
        send(sim, "before", kept)
        sim.wait(node.host.start(node.broker.durability.flush()))
        member = Member(sim, "broadcasting", tmp_path)
        sim.advance(30)
        lost = bodies("lost", 6)
        send(sim, "before", lost)
        sim.advance(10)
        assert member.handled == [*kept, *lost]
        ENDS[end](member)
        node.lose_power()
        node.start()
        left = sim.broker.store.max_offset(TOPIC, 0)
        assert left < 9
        fresh = bodies("new", 10 + growth - left)
        send(sim, "after", fresh)
        if restarts == 2:
            sim.wait(node.host.start(node.broker.durability.flush()))
            node.restart()
        again = Member(sim, "broadcasting", tmp_path)
        sim.advance(60)
        assert again.handled == fresh


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(2, marks=SLOW, id="shorter"),
        pytest.param(5, id="equal"),
        pytest.param(9, marks=SLOW, id="longer"),
    ],
)
@pytest.mark.parametrize("end", ["killed", pytest.param("stopped", marks=SLOW)])
def test_a_broadcasting_member_that_is_down_while_its_topic_is_recreated_begins_at_its_beginning(
    end: str, count: int, tmp_path: Any
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, "before")
        member = Member(sim, "broadcasting", tmp_path)
        old = bodies("old", 5)
        send(sim, "before", old)
        sim.advance(30)
        assert member.handled == old
        ENDS[end](member)
        assert sim.wait(sim.clients["before"].call(DeleteTopic(topic=TOPIC))).code == 0
        create_topic(sim, "before")
        fresh = bodies("new", count)
        send(sim, "before", fresh)
        again = Member(sim, "broadcasting", tmp_path)
        sim.advance(60)
        assert again.handled == fresh
