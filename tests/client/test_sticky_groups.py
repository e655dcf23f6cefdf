"""Groups with the sticky strategy: brokers know which member holds what, and few queues move."""

from collections import Counter

import pytest

from sparrowmq.client.strategies import AVG, STICKY, Strategy
from sparrowmq.protocol.connections import ConsumerIdList
from sparrowmq.protocol.headers.clients import GetConsumerList
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic

SETTLED_S = 5.0


class Group:
    """Members that join and leave, and the queues they hold."""

    def __init__(self, sim: RunningCluster, strategy: Strategy = STICKY) -> None:
        self.sim = sim
        self.strategy = strategy
        self.members: dict[str, Member] = {}

    def join(self, *names: str) -> None:
        for name in names:
            self.members[name] = Member(self.sim, name=name, strategy=self.strategy)

    def owners(self) -> dict[tuple[str, int], str]:
        """Every queue with its owner; fails where there are several."""
        found: dict[tuple[str, int], str] = {}
        for name, member in self.members.items():
            for queue in member.consumer.assignment():
                if queue.topic == TOPIC:
                    assert (queue.broker_name, queue.queue_id) not in found, queue
                    found[queue.broker_name, queue.queue_id] = name
        return found

    def settled(self, queues: int) -> dict[tuple[str, int], str]:
        """Owners after all members had the time to settle; all queues, even loads."""
        self.sim.advance(SETTLED_S)
        owners = self.owners()
        loads = Counter(owners.values())
        assert len(owners) == queues
        assert max(loads.values()) - min(loads[name] for name in self.members) <= 1
        return owners


def moved(before: dict[tuple[str, int], str], after: dict[tuple[str, int], str]) -> int:
    return sum(after[queue] != owner for queue, owner in before.items())


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_join_moves_only_the_queues_the_new_member_gets(brokers: int) -> None:
    with SimCluster(seed=1, brokers=brokers).run() as sim:
        create_topic(sim, queues=24 // brokers)
        group = Group(sim)
        group.join("a", "b", "c")
        before = group.settled(24)
        group.join("d")
        after = group.settled(24)
        assert moved(before, after) == 6
        assert {after[queue] for queue in before if before[queue] != after[queue]} == {"d"}


def test_a_leave_and_a_death_move_only_the_freed_queues() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=24)
        group = Group(sim)
        group.join("a", "b", "c", "d")
        before = group.settled(24)
        group.members.pop("b").leave()
        after = group.settled(24)
        assert {before[queue] for queue in before if before[queue] != after[queue]} == {"b"}
        group.members.pop("d").host.power_off()
        sim.advance(SETTLED_S)
        last = group.settled(24)
        assert {after[queue] for queue in after if after[queue] != last[queue]} == {"d"}


def test_a_member_that_comes_back_moves_nothing_where_nothing_needs_to_move() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        group = Group(sim)
        group.join("a", "b", "c")
        before = group.settled(2)
        idle = next(name for name in group.members if name not in before.values())
        group.members.pop(idle).leave()
        group.join("d")
        assert group.settled(2) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_group_settles_after_any_concurrent_changes(seed: int) -> None:
    with SimCluster(seed, brokers=2).run() as sim:
        create_topic(sim, queues=8)
        rng = sim.rng("who")
        group = Group(sim)
        group.join("m0", "m1")
        for number in range(2, 12):
            sim.advance(rng.random())
            if len(group.members) > 1 and rng.random() < 0.5:
                name = rng.choice(sorted(group.members))
                gone = group.members.pop(name)
                gone.host.kill() if rng.random() < 0.5 else gone.leave()
            else:
                group.join(f"m{number}")
        before = group.settled(16)
        sim.advance(60)
        assert group.owners() == before  # and stays so


def test_averagely_moves_more() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=24)
        group = Group(sim, AVG)
        group.join("a", "b", "c")
        before = group.settled(24)
        group.join("d")
        assert moved(before, group.settled(24)) > 6


def test_brokers_report_owners_only_on_request() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        group = Group(sim)
        group.join("a")
        group.settled(2)
        plain = sim.wait(sim.client.call(GetConsumerList(consumer_group=GROUP)))
        assert b"owners" not in plain.body
        asked = sim.wait(sim.client.call(GetConsumerList(consumer_group=GROUP, owners_of=TOPIC)))
        [name] = ConsumerIdList.from_json(asked.body).consumer_id_list
        assert b'"owners":{"0":"%b","1":"%b"}' % (name.encode(), name.encode()) in asked.body


def test_a_member_looks_every_second_until_every_queue_is_where_it_should_be() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        group = Group(sim)
        group.join("a")
        Member(sim, name="b", strategy=Strategy("TAKES_NOTHING", lambda *lists: []))
        sim.advance(3)
        looks: list[float] = []
        owners = sim.broker.locks.owners

        def look(group: str, topic: str) -> dict[int, str]:
            looks.extend([sim.now_s] if topic == TOPIC else [])
            return owners(group, topic)

        sim.broker.locks.owners = look  # type: ignore[method-assign]
        sim.advance(10)
        assert len(group.owners()) == 2
        assert len(looks) in (9, 10, 11)
