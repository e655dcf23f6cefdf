"""How fast queues change hands among members of ours."""

from collections.abc import Callable

import pytest

from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import TOPIC, Member, create_topic

QUEUES = 8


def queues_of(member: Member) -> int:
    return sum(queue.topic == TOPIC for queue in member.consumer.assignment())


def seconds_until(sim: RunningCluster, condition: Callable[[], bool]) -> float:
    began_s = sim.now_s
    sim.until(condition)
    return sim.now_s - began_s


@pytest.mark.parametrize("seed", range(3))
def test_a_join_settles_in_less_than_1_s(seed: int) -> None:
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        members = [Member(sim, name=f"m{number}") for number in range(3)]
        sim.advance(10)
        began_s = sim.now_s
        members.append(Member(sim, name="m3"))
        sim.until(lambda: all(queues_of(member) == 2 for member in members))
        assert sim.now_s - began_s < 1


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_member_s_queues_have_a_new_owner_in_less_than_1_s(seed: int) -> None:
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        members = [Member(sim, name=f"m{number}") for number in range(3)]
        sim.advance(10)
        members.pop(1).host.kill()
        assert seconds_until(sim, lambda: sum(map(queues_of, members)) == QUEUES) < 1


@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_leaves_is_followed_in_less_than_1_s(seed: int) -> None:
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        members = [Member(sim, name=f"m{number}") for number in range(3)]
        sim.advance(10)
        members.pop(1).leave()
        assert seconds_until(sim, lambda: sum(map(queues_of, members)) == QUEUES) < 1
