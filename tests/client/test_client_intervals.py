"""Times of a consumer that settings of its client decide: rounds, lock renewals, silent queues."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.strategies import AVG, Strategy
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import TOPIC, Member, create_topic, owned

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def gaps_between(times_s: Sequence[float]) -> set[float]:
    return {round(later - earlier) for earlier, later in pairwise(times_s)}


def noting(sim: RunningCluster, times_s: list[float]) -> Strategy:
    """AVG, which notes when it is asked about the topic."""

    def allocate(
        group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if queues[0].topic == TOPIC:
            times_s.append(sim.now_s)
        return AVG(group, me, queues, members)

    return Strategy("NOTING", allocate)


@pytest.mark.parametrize(("client", "gap_s"), [({}, 20), ({"rebalance_s": 7}, 7)])
def test_how_often_queues_are_allocated(client: dict[str, float], gap_s: float) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        times_s: list[float] = []
        Member(sim, client=client, strategy=noting(sim, times_s))
        sim.advance(10)
        times_s.clear()
        sim.advance(70)
        assert gaps_between(times_s) == {gap_s}


@pytest.mark.parametrize(("client", "gap_s"), [({}, 20), ({"lock_renewal_s": 7}, 7)])
def test_how_often_locks_are_renewed(client: dict[str, float], gap_s: float) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, orderly=True, client=client)
        sim.until(lambda: owned(member) == 1)
        held = membership_of(member.consumer).held[QUEUE]
        times_s = [held.locked_s]
        for _ in range(3):
            sim.until(lambda: held.locked_s != times_s[-1])
            times_s.append(held.locked_s)
        assert gaps_between(times_s[1:]) == {gap_s}


@pytest.mark.parametrize(("client", "silence_s"), [({}, 120), ({"pull_silence_s": 60}, 60)])
def test_a_queue_that_is_not_pulled_is_taken_again_after_the_expected_time(
    client: dict[str, float], silence_s: float
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, client=client | {"rebalance_s": 1})
        sim.until(lambda: owned(member) == 1)
        held = membership_of(member.consumer).held[QUEUE]
        began_s = sim.now_s
        assert held.task is not None
        held.task.cancel()
        sim.until(lambda: membership_of(member.consumer).held.get(QUEUE, held) is not held)
        assert silence_s - 1 <= sim.now_s - began_s <= silence_s + 3
