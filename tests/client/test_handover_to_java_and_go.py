"""A busy Python member hands a queue to a member that, as Java's and Go's, takes no locks."""

import asyncio

import pytest

from sparrowmq.broker import queue_handover
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.offsets import OffsetFound, QueryConsumerOffset
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.sys_flag import PULL_SUSPEND
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import TalkingClient, subscribes
from tests.client.members import GROUP, TOPIC, Member, create_topic
from tests.faults.feeder_sim import SimFeeder, to_queues_in_turn

QUEUES = 4
ASK_TIMEOUT_S = 3.0
"""Of the Go client."""


def begin(taker: TalkingClient, queue_id: int) -> int:
    """What a member does that believes in no owner: it asks where its queue stands and pulls from
    there, or from where the broker says. Returns the first offset it was given."""
    stored = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
    offset = taker.ask(stored, timeout_s=ASK_TIMEOUT_S).header(OffsetFound).offset
    while True:
        wanted = PullMessage(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=PULL_SUSPEND,
            commit_offset=0,
            suspend_timeout_millis=15_000,
            sub_version=0,
        )
        answer = taker.ask(wanted, timeout_s=30)
        if answer.code == ResponseCode.SUCCESS:
            return offset
        offset = answer.header(Pulled).next_begin_offset


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
        sim.advance(handler_s + 3)
        taker = TalkingClient(sim, "taker")
        # After all addresses in the order of members: the last queues are its own.
        taker.beat(subscribes(GROUP, TOPIC), client_id="taker")
        began_at = {queue_id: begin(taker, queue_id) for queue_id in range(QUEUES // 2, QUEUES)}
        feeder.stop()
        sim.advance(handler_s + 3)
        return began_at, {queue_id: ended_at[queue_id] for queue_id in began_at}


@pytest.mark.slow
@pytest.mark.parametrize("handler_s", [0.0, 0.05, 0.3, 0.8, 4.0, 9.0])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_comes_twice_when_another_client_takes_a_python_member_s_queues(
    seed: int, handler_s: float
) -> None:
    began_at, ended_at = take_from_a_busy_member(seed, handler_s)
    assert began_at == ended_at


def test_without_that_wait_what_is_in_flight_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_handover, "LONGEST_S", 0.0)
    began_at, ended_at = take_from_a_busy_member(seed=0, handler_s=0.3)
    assert all(began_at[queue_id] < ended_at[queue_id] for queue_id in began_at)


def test_a_handler_that_the_member_itself_does_not_wait_for_may_be_repeated() -> None:
    """After 10 s it lets its queues go, to any member; nothing is left out."""
    began_at, ended_at = take_from_a_busy_member(seed=0, handler_s=12.0)
    assert all(began_at[queue_id] <= ended_at[queue_id] for queue_id in began_at)
