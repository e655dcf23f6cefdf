"""Orderly consumption: batches and results of a queue that is lost during a wait."""

import asyncio
from collections.abc import Callable

import pytest

from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, owned, send, stored_offset


def test_a_queue_lost_during_its_lock_check_hands_out_no_more_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slowly(member: QueueOwnership, held: HeldQueue) -> bool:
        await asyncio.sleep(2)
        return True

    monkeypatch.setattr(QueueOwnership, "has_lock", slowly)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        first = Member(sim, name="a", orderly=True)
        sim.advance(3)
        send(sim, b"x", queue_id=1)
        second = Member(sim, name="b", orderly=True)
        sim.advance(1)
        assert owned(second) == 1
        sim.advance(10)
        assert (first.got, second.got) == ([], [b"x"])


def test_what_fails_in_a_queue_that_was_lost_meanwhile_does_not_go_to_the_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    async def note(giving_back: GivingBack, message: MessageExt, level: int, why: str) -> bool:
        given.append(sim.now_s)
        return True

    async def fail(message: MessageExt) -> None:
        await asyncio.sleep(3)
        raise ValueError("never works")

    monkeypatch.setattr(GivingBack, "give_back", note)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail, orderly=True, max_reconsume_times=0)
        send(sim, b"x")
        sim.until(lambda: member.got == [b"x"])
        group = membership_of(member.consumer)
        group.ownership.lose(group.held[MessageQueue(TOPIC, "broker-a", 0)])
        sim.advance(3.5)
        assert given == []
        sim.advance(30)
        assert member.got == [b"x", b"x"]  # it has the queue again, and begins where it was
        assert len(given) == 1


def break_connections(sim: RunningCluster, member: Member) -> None:
    sim.network.reset_connections(sim.brokers["broker-a"].host, member.host)


def reset_group(sim: RunningCluster, member: Member) -> None:
    header = InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0)
    sim.wait(sim.client.call(header))


@pytest.mark.parametrize("lose_queue", [break_connections, reset_group])
def test_a_queue_that_comes_back_waits_for_the_handler_that_still_works_on_it(
    lose_queue: Callable[[RunningCluster, Member], None],
) -> None:
    running: list[int] = []
    ended: list[bytes] = []

    async def work(message: MessageExt) -> None:
        running.append(1 if not running else running[-1] + 1)
        await asyncio.sleep(15)
        running.append(running[-1] - 1)
        ended.append(message.body)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"1", b"2")
        member = Member(sim, work, orderly=True)
        sim.until(lambda: member.got == [b"1"])
        lose_queue(sim, member)
        sim.until(lambda: len(ended) == 3)
        assert max(running) == 1
        assert ended == [b"1", b"1", b"2"]


def test_an_orderly_handler_may_send_to_the_dead_letters_at_once() -> None:
    async def refuse(message: MessageExt) -> None:
        if message.body == b"bad":
            raise RetryLater("never", delay_level=-1)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"bad", b"good")
        member = Member(sim, refuse, orderly=True)
        sim.advance(6)
        assert member.got == [b"bad", b"good"]
        assert sim.wait(sim.client.pull(dlq_topic(GROUP))).bodies == [b"bad"]
        assert stored_offset(sim) == 2
