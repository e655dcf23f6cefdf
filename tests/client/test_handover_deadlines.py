"""How long a queue stays with a handler that does not end, and how long its next owner waits."""

import asyncio

import pytest

from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.group.rebalance_plan import Reason
from sparrowmq.protocol.headers.clients import LockBatch, UnlockBatch
from sparrowmq.protocol.locks import LockBatchRequest
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, owned, send

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def a_guest_while_a_handler_runs(
    sim: RunningCluster, handler_s: float, *, orderly: bool, fails: bool = False
) -> tuple[Member, Member]:
    """A member whose handler has a message of queue 1, and the one that is to have that queue."""

    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(handler_s)
        if fails:
            raise ValueError("in vain")

    create_topic(sim, 2)
    member = Member(sim, handle, name="a", orderly=orderly, stop_within_s=0)
    sim.advance(3)
    send(sim, b"slow", queue_id=1)
    sim.until(lambda: member.got == [b"slow"])
    return member, Member(sim, name="b", orderly=orderly)


@pytest.mark.parametrize(("handler_s", "comes_again"), [(9, False), (13, True)])
def test_a_queue_is_released_after_10_s_although_its_handler_runs(
    handler_s: float, comes_again: bool
) -> None:
    with SimCluster(seed=1).run() as sim:
        _, guest = a_guest_while_a_handler_runs(sim, handler_s, orderly=False)
        sim.advance(9.5)
        assert guest.got == []
        sim.advance(2.5)
        assert owned(guest) == 1
        assert guest.got == [b"slow"] * comes_again


def test_a_handler_that_fails_after_its_queue_was_released_sends_nothing_back() -> None:
    with SimCluster(seed=1).run() as sim:
        member, guest = a_guest_while_a_handler_runs(sim, 13, orderly=False, fails=True)
        sim.advance(60)
        assert (member.got, guest.got) == ([b"slow"], [b"slow"])


def test_an_ordered_queue_stays_for_as_long_as_its_handler_runs() -> None:
    with SimCluster(seed=1).run() as sim:
        member, guest = a_guest_while_a_handler_runs(sim, 100, orderly=True)
        sim.advance(90)
        assert owned(guest) == 0
        sim.advance(20)
        assert owned(guest) == 1
        assert (member.got, guest.got) == ([b"slow"], [])


def stranger(sim: RunningCluster, header: LockBatch | UnlockBatch) -> None:
    """A member that holds the queue, or does no longer, and never consumes it."""
    body = LockBatchRequest(
        consumer_group=GROUP, client_id="stranger", mq_set=frozenset([QUEUE])
    ).to_json()
    sim.wait(sim.client.call(header, body))


def test_a_queue_that_is_not_released_is_taken_after_15_s() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        stranger(sim, LockBatch())
        member = Member(sim)
        sim.advance(14.5)
        assert owned(member) == 0
        sim.advance(1.5)
        assert owned(member) == 1


def test_the_15_s_start_over_with_each_wait_for_a_queue() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        stranger(sim, LockBatch())
        member = Member(sim)
        sim.advance(5)
        stranger(sim, UnlockBatch())
        sim.advance(15)
        assert owned(member) == 1
        handover = membership_of(member.consumer).handover
        sim.run(handover.give_up({QUEUE: Reason.ASSIGNED_ELSEWHERE}), on=member.host)
        stranger(sim, LockBatch())
        membership_of(member.consumer).wake()
        sim.advance(14)
        assert owned(member) == 0


def test_a_member_waits_for_a_locked_ordered_queue_until_it_is_free() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        stranger(sim, LockBatch())
        member = Member(sim, orderly=True)
        sim.advance(50)
        assert member.got == []
        stranger(sim, UnlockBatch())
        sim.advance(1)
        assert member.got == [b"x"]
