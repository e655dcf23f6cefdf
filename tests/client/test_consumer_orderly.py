"""Orderly consumption and its three guards. Each guard has a twin without it, which goes wrong."""

import asyncio

import pytest

from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.consuming.orderly_consumption import OrderlyConsumption
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import (
    GROUP,
    TOPIC,
    Member,
    create_topic,
    miss_progress_of_others,
    send,
    stored_offset,
)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Watch:
    """A slow handler for all members that sees whether two of them work on one queue at once."""

    def __init__(self, handler_s: float) -> None:
        self.overlaps = 0
        self.order: list[bytes] = []
        self._handler_s = handler_s
        self._running = 0

    async def handle(self, message: MessageExt) -> None:
        self.order.append(message.body)
        self._running += 1
        self.overlaps += self._running > 1
        try:
            await asyncio.sleep(self._handler_s)
        finally:
            self._running -= 1


def test_messages_of_a_queue_come_one_after_the_other_in_their_order() -> None:
    watch = Watch(0.01)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(50))
        Member(sim, watch.handle, orderly=True)
        sim.advance(7)
        assert watch.order == numbers(50)
        assert watch.overlaps == 0
        assert stored_offset(sim) == 50


def test_a_queue_that_was_empty_continues_with_new_messages() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, orderly=True)
        for body in numbers(3):
            send(sim, body)
            sim.advance(2)
        assert member.got == numbers(3)


def test_queues_are_consumed_side_by_side() -> None:
    async def take_a_second(message: MessageExt) -> None:
        await asyncio.sleep(1)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        for queue_id in range(4):
            send(sim, b"x", queue_id=queue_id)
        member = Member(sim, take_a_second, orderly=True)
        sim.until(lambda: len(member.got) == 4)
        assert sim.now_s < 3


def test_a_failing_batch_is_tried_again_in_its_place_after_1_s() -> None:
    tries: list[tuple[bytes, int, float]] = []

    async def fail_twice(message: MessageExt) -> None:
        tries.append((message.body, message.reconsume_times, sim.now_s))
        if message.body == b"0" and message.reconsume_times < 2:
            raise ValueError("not yet")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(2))
        Member(sim, fail_twice, orderly=True)
        sim.advance(5)
        assert [(body, times) for body, times, _ in tries] == [
            (b"0", 0),
            (b"0", 1),
            (b"0", 2),
            (b"1", 0),
        ]
        assert tries[1][2] - tries[0][2] == pytest.approx(1.0)


@pytest.mark.parametrize(("chosen_s", "waited_s"), [(0.2, 0.2), (0.001, 0.01), (99.0, 30.0)])
def test_the_handler_may_choose_the_pause_from_10_ms_to_30_s(
    chosen_s: float, waited_s: float
) -> None:
    tries: list[float] = []

    async def fail_once(message: MessageExt) -> None:
        tries.append(sim.now_s)
        if len(tries) == 1:
            raise RetryLater(suspend_s=chosen_s)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        Member(sim, fail_once, orderly=True)
        sim.advance(40)
        assert tries[1] - tries[0] == pytest.approx(waited_s)


def test_with_a_limit_a_failing_message_ends_among_the_dead_letters() -> None:
    async def refuse(message: MessageExt) -> None:
        if message.body == b"0":
            raise ValueError("never")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(2))
        member = Member(sim, refuse, orderly=True, max_reconsume_times=2)
        sim.advance(10)
        assert member.got == [b"0", b"0", b"0", b"1"]
        assert sim.wait(sim.client.pull(dlq_topic(GROUP))).bodies == [b"0"]


# ---- guard 1: the broker's lock


def both_after_a_pause(sim: RunningCluster) -> Watch:
    """A member is stopped for so long that another one takes its queue; then it wakes up."""
    watch = Watch(2)
    create_topic(sim)
    send(sim, *numbers(60))
    first = Member(sim, watch.handle, name="a", orderly=True)
    sim.until(lambda: len(watch.order) == 3)
    first.host.pause()
    # Its connection is not closed: only its silence shows, and the lock runs out after 60 s.
    sim.advance(1)
    second = Member(sim, watch.handle, name="b", orderly=True)
    sim.advance(150)
    assert [queue.topic for queue in second.consumer.assignment()].count(TOPIC) == 1
    watch.order.clear()
    watch.overlaps = 0
    first.host.resume()
    sim.advance(20)
    return watch


def test_a_member_that_was_paused_checks_its_lock_before_the_next_batch() -> None:
    with SimCluster(seed=1).run() as sim:
        watch = both_after_a_pause(sim)
        # Only the handler that ran when it was stopped may still end.
        assert watch.overlaps == 0
        assert watch.order == sorted(watch.order, key=int)


def test_without_the_broker_s_lock_two_members_consume_a_queue_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def always(self: QueueOwnership, held: HeldQueue) -> bool:
        return True

    monkeypatch.setattr(QueueOwnership, "has_lock", always)
    with SimCluster(seed=1, session_timeout_s=0).run() as sim:
        assert both_after_a_pause(sim).overlaps > 0


# ---- guard 2: one worker per queue


def consumed_by_many_workers(sim: RunningCluster) -> Watch:
    watch = Watch(0.1)
    create_topic(sim)
    member = Member(sim, watch.handle, orderly=True)
    sim.advance(1)
    for body in numbers(5):
        send(sim, body)  # each arrives alone, while the handler still has the one before
    sim.advance(5)
    assert member.consumer.assignment()
    return watch


def test_only_one_worker_has_a_queue() -> None:
    with SimCluster(seed=1).run() as sim:
        assert consumed_by_many_workers(sim).order == numbers(5)


def test_without_that_messages_are_handed_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderlyConsumption, "claim", lambda self, held: True)
    with SimCluster(seed=1).run() as sim:
        assert consumed_by_many_workers(sim).order != numbers(5)


# ---- guard 3: the consume lock, for which a release waits


def handed_over(sim: RunningCluster) -> Watch:
    watch = Watch(3)
    create_topic(sim, queues=2)
    Member(sim, watch.handle, name="a", orderly=True)
    sim.advance(2)
    send(sim, *numbers(5), queue_id=1)
    Member(sim, watch.handle, name="b", orderly=True)
    sim.advance(30)
    return watch


def test_a_queue_is_released_when_its_handler_is_done() -> None:
    with SimCluster(seed=1).run() as sim:
        watch = handed_over(sim)
        assert watch.overlaps == 0
        assert watch.order == numbers(5)


def test_without_the_consume_lock_the_next_owner_starts_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(held: HeldQueue, within_s: float) -> None:
        pass

    monkeypatch.setattr(HeldQueue, "is_running", False)
    monkeypatch.setattr(HeldQueue, "handlers_end", at_once)
    with SimCluster(seed=1).run() as sim:
        assert handed_over(sim).overlaps > 0


def test_a_member_cut_off_for_30_s_stops_by_itself() -> None:
    watch = Watch(1)
    with SimCluster(seed=1, session_timeout_s=0).run() as sim:
        create_topic(sim)
        send(sim, *numbers(200))
        member = Member(sim, watch.handle, orderly=True, pull_batch=200)
        sim.advance(10)
        sim.paths.partition([member.host], [sim.host("broker-a")])
        sim.advance(32)
        seen = len(watch.order)
        sim.advance(10)
        assert len(watch.order) == seen
        sim.paths.heal()
        sim.advance(20)
        assert len(watch.order) > seen
        assert watch.order == numbers(len(watch.order))


def test_a_lock_that_had_a_gap_is_lost_and_the_queue_begins_where_others_ended() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(10))
        member = Member(sim, Watch(5).handle, orderly=True)
        sim.until(lambda: len(member.got) == 2)
        miss_progress_of_others(sim, member, 75)
        assert member.got[2:] == [b"9"]
        assert stored_offset(sim) == 10
