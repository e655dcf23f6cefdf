"""A busy Python member hands a queue to a member that, as Java's and Go's, takes no locks."""

import asyncio

import pytest

from sparrowmq.broker import hand_over
from sparrowmq.protocol.headers.offsets import OffsetFound, QueryConsumerOffset
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.broker.world import TalkingClient, subscribes
from tests.client.members import GROUP, TOPIC, Member, create_topic
from tests.faults.feeder_sim import SimFeeder, to_queues_in_turn

QUEUES = 4
CALL_TIMEOUT_S = 3.0
"""Of the Go client."""


def begin_all_queues(sim: RunningCluster, taker: TalkingClient) -> dict[int, int]:
    """What a member does that believes in no owner: ask where its queues stand, one by one."""
    began_at = {}
    for queue_id in range(QUEUES // 2, QUEUES):
        header = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
        answer = taker.ask(header, timeout_s=CALL_TIMEOUT_S)
        began_at[queue_id] = answer.header(OffsetFound).offset
    return began_at


def take_from_a_busy_member(seed: int, handler_s: float) -> tuple[dict[int, int], dict[int, int]]:
    """Where another client began its queues, and where the member had ended them."""
    with SimCluster(seed).run() as sim:
        create_topic(sim, QUEUES)
        ended_at: dict[int, int] = {}

        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(handler_s)
            done = max(ended_at.get(message.queue_id, 0), message.queue_offset + 1)
            ended_at[message.queue_id] = done

        Member(sim, handle)
        feeder = SimFeeder(sim, to_queues_in_turn(QUEUES), pause_s=0.02)
        sim.advance(3)
        taker = TalkingClient(sim, "taker")
        # After all addresses in the order of members: the last queues are its own.
        taker.beat(subscribes(GROUP, TOPIC), client_id="taker")
        began_at = begin_all_queues(sim, taker)
        feeder.stop()
        sim.advance(handler_s + 3)
        return began_at, {queue_id: ended_at[queue_id] for queue_id in began_at}


@pytest.mark.parametrize("handler_s", [0.0, 0.05, 0.3, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_comes_twice_when_another_client_takes_a_python_member_s_queues(
    seed: int, handler_s: float
) -> None:
    began_at, ended_at = take_from_a_busy_member(seed, handler_s)
    assert began_at == ended_at


def test_without_that_wait_what_is_in_flight_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "LONGEST_S", 0.0)
    began_at, ended_at = take_from_a_busy_member(seed=0, handler_s=0.3)
    assert all(began_at[queue_id] < ended_at[queue_id] for queue_id in began_at)


def test_a_handler_that_runs_for_longer_is_not_waited_for() -> None:
    """The other client would give up the queue for 20 s if it got no answer in time."""
    began_at, ended_at = take_from_a_busy_member(seed=0, handler_s=5.0)
    assert all(began_at[queue_id] <= ended_at[queue_id] for queue_id in began_at)
