"""Members come and go; every message is consumed and every queue has one owner."""

from collections import Counter

import pytest

from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.sim.consumers import Feeder, Member, create_topic

QUEUES = 8


def assert_every_queue_has_one_owner(sim: RunningCluster, members: list[Member]) -> None:
    held = Counter(queue for member in members for queue in member.queues())
    assert set(held.values()) == {1}
    assert len(held) == QUEUES * len(sim.brokers)


def test_members_share_the_queues_and_consume_everything_once() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim, QUEUES)
        handled: Counter[bytes] = Counter()
        members = [Member(sim, f"member-{number}", handled) for number in range(3)]
        sim.advance(5)
        assert_every_queue_has_one_owner(sim, members)
        feeder = Feeder(sim)
        sim.advance(20)
        feeder.stop()
        sim.advance(2)
        assert len(feeder.sent) > 500
        assert handled == Counter(feeder.sent)


def join_and_leave(seed: int) -> tuple[list[bytes], Counter[bytes]]:
    """What was sent, and how often each message was handled."""
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        handled: Counter[bytes] = Counter()
        rng = sim.rng("who")
        members = [Member(sim, "member-0", handled)]
        feeder = Feeder(sim)
        for number in range(1, 12):
            sim.advance(rng.random() * 3)
            if len(members) > 1 and rng.random() < 0.5:
                members.pop(rng.randrange(len(members))).leave()
            else:
                members.append(Member(sim, f"member-{number}", handled))
        sim.advance(5)
        assert_every_queue_has_one_owner(sim, members)
        feeder.stop()
        sim.advance(5)
        return feeder.sent, handled


@pytest.mark.slow
def test_members_that_join_and_leave_in_order_lose_nothing_and_handle_nothing_twice(
    seed: int,
) -> None:
    sent, handled = join_and_leave(seed)
    assert handled == Counter(sent)


def test_killed_members_lose_nothing_and_their_queues_find_new_owners_in_5_s(seed: int) -> None:
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        handled: Counter[bytes] = Counter()
        rng = sim.rng("who")
        members = [Member(sim, f"member-{number}", handled) for number in range(3)]
        feeder = Feeder(sim)
        for number in range(3, 10):
            sim.advance(rng.random() * 3)
            members.pop(rng.randrange(len(members))).kill()
            members.append(Member(sim, f"member-{number}", handled))
        sim.advance(5)
        assert_every_queue_has_one_owner(sim, members)
        feeder.stop()
        sim.advance(5)
        assert set(feeder.sent) - set(handled) == set()


def test_a_group_continues_after_its_broker_was_killed() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim, QUEUES)
        handled: Counter[bytes] = Counter()
        members = [Member(sim, f"member-{number}", handled) for number in range(2)]
        feeder = Feeder(sim)
        sim.advance(10)
        sim.brokers["broker-a"].restart()
        sim.advance(30)
        feeder.stop()
        sim.advance(30)
        assert_every_queue_has_one_owner(sim, members)
        assert set(feeder.sent) - set(handled) == set()
