"""How fast queues change hands among members of ours."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest

from sparrowmq.broker.rebalance_notices import RebalanceNotices
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import TOPIC, Member, create_topic, send
from tests.faults.feeder_sim import SimFeeder, to_queues_in_turn

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
def test_queues_of_a_leaving_member_have_a_new_owner_in_less_than_1_s(seed: int) -> None:
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        members = [Member(sim, name=f"m{number}") for number in range(3)]
        sim.advance(10)
        members.pop(1).leave()
        assert seconds_until(sim, lambda: sum(map(queues_of, members)) == QUEUES) < 1


class Watched:
    """Members that note who was given something of which queue, and when."""

    def __init__(self, sim: RunningCluster, handler_s: float) -> None:
        self._sim = sim
        self._handler_s = handler_s
        self.given: dict[int, list[tuple[float, str]]] = defaultdict(list)

    def join(self, name: str) -> Member:
        async def handle(message: MessageExt) -> None:
            self.given[message.queue_id].append((self._sim.now_s, name))
            await asyncio.sleep(self._handler_s)

        return Member(self._sim, handle, name=name)

    def pauses_s(self, since_s: float) -> list[float]:
        """Of each queue that another member has now: from its last call there to the first here."""
        pauses = []
        for calls in self.given.values():
            for (before_s, before), (after_s, after) in pairwise(calls):
                if before != after and after_s >= since_s:
                    pauses.append(after_s - before_s)
        return pauses


def pauses_at_a_join(seed: int) -> list[float]:
    """A fourth member joins three busy ones: how long each queue that moved had to wait."""
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        watched = Watched(sim, handler_s=0.01)
        for number in range(3):
            watched.join(f"m{number}")
        feeder = SimFeeder(sim, to_queues_in_turn(QUEUES), pause_s=0.01)
        sim.advance(3)
        since_s = sim.now_s
        watched.join("m3")
        sim.advance(2)
        feeder.stop()
        return watched.pauses_s(since_s)


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_that_moves_at_a_join_pauses_for_less_than_150_ms(seed: int) -> None:
    """Its messages come every 80 ms, and a handler needs 10 ms."""
    pauses_s = pauses_at_a_join(seed)
    print([round(one * 1000) for one in pauses_s])
    assert len(pauses_s) >= 2
    assert max(pauses_s) < 0.15


def test_a_queue_pauses_for_half_a_second_more_where_the_broker_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with Apache's brokers, which know the owner of a lock and not who wants it."""
    monkeypatch.setattr(RebalanceNotices, "queues_freed", lambda *_: None)
    assert 0.4 < max(pauses_at_a_join(seed=0)) < 0.7


@pytest.mark.parametrize("orderly", [False, True])
def test_a_queue_whose_handler_still_runs_moves_as_soon_as_it_is_done(orderly: bool) -> None:
    """Rounds look after 0.5 s and 1 s later again: this handler ends in between."""
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        ended_s: list[float] = []

        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(0.8)
            ended_s.append(sim.now_s)

        Member(sim, handle, name="a", orderly=orderly)
        sim.advance(3)
        send(sim, b"slow", queue_id=1)
        taker = Member(sim, name="b", orderly=orderly)
        sim.until(lambda: queues_of(taker) == 1)
        assert len(ended_s) == 1
        assert sim.now_s - ended_s[0] < 0.1
