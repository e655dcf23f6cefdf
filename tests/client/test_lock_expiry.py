"""How old the lock of an ordered queue may be: renewed at 20 s, doubted at 30 s, lost at 60 s."""

import pytest

from sparrowmq.client.group.group_consumer import core_of_consumer, membership_of
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import TOPIC, Member, create_topic, owned

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def with_a_lock(sim: RunningCluster) -> tuple[Member, HeldQueue]:
    create_topic(sim)
    member = Member(sim, orderly=True)
    sim.until(lambda: owned(member) == 1)
    return member, membership_of(member.consumer).held[QUEUE]


def test_a_lock_is_renewed_every_20_s() -> None:
    with SimCluster(seed=1).run() as sim:
        _, held = with_a_lock(sim)
        locked_s = [held.locked_s]
        for wait_s in (18, 3, 16, 3):
            sim.advance(wait_s)
            locked_s.append(held.locked_s)
        assert locked_s[0] == locked_s[1] < locked_s[2] == locked_s[3] < locked_s[4]


def is_sure(sim: RunningCluster, member: Member, held: HeldQueue, age_s: float) -> bool:
    """Whether a queue is certainly the member's when its lock is so old."""

    async def ask() -> bool:
        held.locked_s = core_of_consumer(member.consumer).sessions.now_s() - age_s
        return membership_of(member.consumer).ownership.is_sure(held)

    return sim.run(ask(), on=member.host)


def test_a_lock_that_was_not_renewed_for_30_s_is_in_doubt() -> None:
    with SimCluster(seed=1).run() as sim:
        member, held = with_a_lock(sim)
        assert is_sure(sim, member, held, age_s=29)
        assert not is_sure(sim, member, held, age_s=31)


@pytest.mark.parametrize(("age_s", "is_kept"), [(55, True), (65, False)])
def test_a_lock_that_was_not_renewed_for_60_s_is_lost(age_s: float, is_kept: bool) -> None:
    """The broker gives it again, but another member may have had it meanwhile."""
    with SimCluster(seed=1).run() as sim:
        member, held = with_a_lock(sim)
        assert not is_sure(sim, member, held, age_s)
        sim.advance(5)
        assert (membership_of(member.consumer).held[QUEUE] is held) == is_kept
