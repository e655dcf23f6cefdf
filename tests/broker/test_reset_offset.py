"""An operator moves a group: online or not, by time or to an offset, answered queue by queue."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import NotifyConsumerIdsChanged
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset, ResetConsumerOffset
from sparrowmq.protocol.headers.groups import DeleteGroup
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.protocol.offsets_body import ResetOffset
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.world import TalkingClient, World, queue, subscribes

AT_ONCE_S = 0.1
"""Less than any timer: the pull was woken."""


@pytest.fixture
def consumed(world: World) -> World:
    """Three messages a minute apart in queue 0, two at once in queue 1; all consumed."""
    world.topic("orders", 2)
    world.group("billing")
    for body in (b"1", b"2", b"3"):
        world.send("orders", body)
        world.sim.advance(60)
    world.send("orders", b"4", b"5", queue_id=1)
    commit(world, 0, 3)
    commit(world, 1, 2)
    return world


def commit(world: World, queue_id: int, at: int) -> None:
    world.commit("billing", "orders", queue_id, at)


def reset(world: World, **changes: Any) -> Response:
    fields: dict[str, Any] = {"topic": "orders", "group": "billing", "timestamp": 0}
    return world.ask(InvokeResetOffset(**(fields | changes)))


def told(answer: Response) -> dict[int, int]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = ResetOffset.from_json(answer.body).offset_table
    assert {one.broker_name for one in table} == {"broker-a"}
    return {one.queue_id: offset for one, offset in table.items()}


def stored(world: World, queue_id: int) -> int:
    return world.broker.offsets.get("billing", "orders", queue_id)


def test_an_offline_group_is_moved_by_time_and_each_queue_reported(consumed: World) -> None:
    assert told(reset(consumed)) == {0: 0, 1: 0}
    assert [stored(consumed, 0), stored(consumed, 1)] == [0, 0]
    two_minutes_ago = consumed.sim.clock() - 130_000
    assert told(reset(consumed, timestamp=two_minutes_ago)) == {0: 1, 1: 0}


def test_a_group_that_was_deleted_but_has_progress_can_be_moved(consumed: World) -> None:
    consumed.done(DeleteGroup(group_name="billing"))
    assert told(reset(consumed)) == {0: 0, 1: 0}


def test_a_time_below_0_means_the_end(consumed: World) -> None:
    commit(consumed, 0, 1)
    assert told(reset(consumed, timestamp=-1)) == {0: 3, 1: 2}


def test_without_force_no_queue_moves_forward(consumed: World) -> None:
    commit(consumed, 0, 1)
    assert told(reset(consumed, timestamp=-1, is_force=False)) == {0: 1, 1: 2}


def test_one_queue_is_moved_to_an_offset(consumed: World) -> None:
    assert told(reset(consumed, queue_id=0, offset=2)) == {0: 2}
    assert [stored(consumed, 0), stored(consumed, 1)] == [2, 2]


def test_one_queue_is_moved_by_time(consumed: World) -> None:
    a_minute_ago = consumed.sim.clock() - 70_000
    assert told(reset(consumed, queue_id=0, timestamp=a_minute_ago)) == {0: 2}
    assert told(reset(consumed, queue_id=0, offset=-1, timestamp=0)) == {0: 0}
    assert stored(consumed, 1) == 2


def test_the_first_and_the_last_offset_of_a_queue_are_in_it(consumed: World) -> None:
    assert told(reset(consumed, queue_id=0, offset=0)) == {0: 0}
    assert told(reset(consumed, queue_id=0, offset=3)) == {0: 3}


def test_a_topic_without_queues_to_read_cannot_be_reset(consumed: World) -> None:
    consumed.topic("orders", 0)
    answer = reset(consumed)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no queue" in answer.remark


def test_a_pull_that_carries_older_progress_does_not_undo_a_reset(consumed: World) -> None:
    consumed.client("a").beat(subscribes("billing"))
    commit(consumed, 1, 0)
    reset(consumed, queue_id=0, offset=1)
    for queue_id in (0, 1):
        consumed.pull("orders", queue_id=queue_id, sys_flag=PULL_COMMIT_OFFSET, commit_offset=2)
    assert [stored(consumed, 0), stored(consumed, 1)] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "missing"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 0, "offset": 4}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 2, "offset": 0}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_an_invalid_reset_is_refused_and_nothing_moves(
    consumed: World, changes: dict[str, Any], code: int
) -> None:
    assert reset(consumed, **changes).code == code
    assert [stored(consumed, 0), stored(consumed, 1)] == [3, 2]


@pytest.mark.parametrize(
    "target",
    [{"timestamp": -1}, {"timestamp": 1 << 60}, {"queue_id": 0, "offset": 4}],
    ids=["the end", "by time", "to an offset"],
)
def test_with_synchronous_flush_a_reset_goes_as_far_as_the_last_durable_message(
    target: dict[str, Any], half_synced: World
) -> None:
    assert told(reset(half_synced, **target)) == {0: 4}
    assert stored(half_synced, 0) == 4


def test_with_synchronous_flush_a_reset_to_a_message_that_is_not_durable_is_refused(
    half_synced: World,
) -> None:
    answer = reset(half_synced, queue_id=0, offset=7)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "which has 0 to 4" in answer.remark
    assert stored(half_synced, 0) == -1


def waiting_pull(member: TalkingClient, queue_offset: int) -> asyncio.Task[Response]:
    return member.asking(
        PullMessage(
            consumer_group="billing",
            topic="orders",
            queue_id=0,
            queue_offset=queue_offset,
            max_msg_nums=32,
            sys_flag=PULL_SUSPEND,
            commit_offset=0,
            suspend_timeout_millis=15_000,
            sub_version=0,
        )
    )


def joins(world: World, name: str, language: str = "PYTHON") -> TalkingClient:
    """A live member of the group. Test clients write Python's language, so others are marked."""
    member = world.client(name)
    member.beat(subscribes("billing"))
    world.sim.advance(60)  # pulls wait for no owner any more
    member.beat(subscribes("billing"))
    group = world.broker.consumers.group("billing")
    assert group is not None
    registered = group.find(name)
    assert registered is not None
    registered.language = language
    return member


def test_live_members_of_ours_are_notified_at_once(consumed: World) -> None:
    a, b = joins(consumed, "a"), joins(consumed, "b")
    reset(consumed)
    consumed.sim.until_idle()
    for member in (a, b):
        (call,) = member.answered.of(ResetConsumerOffset)
        assert (call.header.topic, call.header.group) == ("orders", "billing")
        table = ResetOffset.from_json(call.body).offset_table
        assert table == {queue("orders", 0): 0, queue("orders", 1): 0}


@pytest.mark.parametrize("language", ["JAVA", "GO", "CPP"])
def test_members_in_other_languages_get_no_notice_that_would_stop_them_for_seconds(
    consumed: World, language: str
) -> None:
    member = joins(consumed, "a", language)
    reset(consumed)
    consumed.sim.until_idle()
    assert not member.answered.of(ResetConsumerOffset)


@pytest.mark.parametrize("target", [1, 3], ids=["elsewhere", "where it stands already"])
def test_a_pull_that_waits_is_answered_by_a_reset_at_once(consumed: World, target: int) -> None:
    pull = waiting_pull(joins(consumed, "a", "JAVA"), 3)
    consumed.sim.until_idle()
    began_s = consumed.sim.now_s
    reset(consumed, queue_id=0, offset=target)
    answer = consumed.sim.wait(pull)
    assert consumed.sim.now_s - began_s < AT_ONCE_S
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.header(Pulled).next_begin_offset == target


def test_every_waiting_pull_of_a_connection_is_answered(consumed: World) -> None:
    member = joins(consumed, "a", "JAVA")
    pulls = [waiting_pull(member, 3) for _ in range(2)]
    consumed.sim.until_idle()
    began_s = consumed.sim.now_s
    reset(consumed, queue_id=0, offset=1)
    codes = [consumed.sim.wait(pull).code for pull in pulls]
    assert codes == [ResponseCode.PULL_OFFSET_MOVED] * 2
    assert consumed.sim.now_s - began_s < AT_ONCE_S
    commit(consumed, 0, 3)
    assert stored(consumed, 0) == 1, "neither of them ended the reset"


def test_pulls_of_other_groups_and_other_queues_keep_waiting(consumed: World) -> None:
    others = [
        consumed.sim.client.pull("orders", offset=3, wait_s=10, group="another"),
        consumed.sim.client.pull("orders", queue_id=1, offset=2, wait_s=10, group="billing"),
    ]
    consumed.sim.until_idle()
    reset(consumed, queue_id=0, offset=1)
    consumed.sim.until_idle()
    assert not any(pull.done() for pull in others)


def test_a_late_commit_of_a_member_does_not_undo_a_reset(consumed: World) -> None:
    reset(consumed)
    commit(consumed, 0, 3)
    assert stored(consumed, 0) == 0


def test_commits_count_again_when_the_member_that_was_moved_pulls_on(consumed: World) -> None:
    """Java 4.9 and Go keep committing their old progress for 10 s after a reset."""
    member = joins(consumed, "a", "JAVA")
    pull = waiting_pull(member, 3)
    consumed.sim.until_idle()
    reset(consumed, queue_id=0, offset=1)
    consumed.sim.wait(pull)
    commit(consumed, 0, 3)
    assert stored(consumed, 0) == 1, "the member has not applied it yet"
    consumed.sim.wait(waiting_pull(member, 1))
    commit(consumed, 0, 2)
    assert stored(consumed, 0) == 2


def test_a_member_that_stored_the_new_offset_is_asked_to_rebalance(consumed: World) -> None:
    """Java 4.9 and Go drop a queue that was moved, and take it again at their next rebalance."""
    member = joins(consumed, "a", "JAVA")
    pull = waiting_pull(member, 3)
    consumed.sim.until_idle()
    reset(consumed, queue_id=0, offset=1)
    consumed.sim.wait(pull)
    known = len(member.answered.of(NotifyConsumerIdsChanged))
    for offset, notices in ((3, 0), (1, 1)):
        member.ask(
            UpdateConsumerOffset(
                consumer_group="billing", topic="orders", queue_id=0, commit_offset=offset
            )
        )
        consumed.sim.until_idle()
        assert len(member.answered.of(NotifyConsumerIdsChanged)) == known + notices


def test_a_member_that_pulls_on_is_sent_to_the_new_offset(consumed: World) -> None:
    consumed.client("a").beat(subscribes("billing"))
    reset(consumed, queue_id=0, offset=1)
    answer = consumed.pull("orders", queue_offset=3)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.header(Pulled).next_begin_offset == 1
    assert consumed.pull("orders", queue_offset=1).code == ResponseCode.SUCCESS
    commit(consumed, 0, 2)
    assert stored(consumed, 0) == 2, "the reset is over"


def test_a_reader_that_chooses_its_own_offsets_is_redirected_only_once(consumed: World) -> None:
    consumed.client("a").beat(subscribes("billing"))
    reset(consumed, queue_id=0, offset=1)
    codes = [consumed.pull("orders", queue_offset=2).code for _ in range(2)]
    assert codes == [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.SUCCESS]


def test_a_member_that_asks_gets_the_new_offset_and_may_commit_again(consumed: World) -> None:
    reset(consumed)
    question = QueryConsumerOffset(consumer_group="billing", topic="orders", queue_id=0)
    assert consumed.done(question).header(OffsetFound).offset == 0
    commit(consumed, 0, 1)
    assert stored(consumed, 0) == 1


def test_a_tool_that_asks_while_members_are_online_does_not_end_a_reset(consumed: World) -> None:
    joins(consumed, "a", "JAVA")
    reset(consumed)
    question = QueryConsumerOffset(consumer_group="billing", topic="orders", queue_id=0)
    assert consumed.done(question).header(OffsetFound).offset == 0
    commit(consumed, 0, 3)
    assert stored(consumed, 0) == 0


ENDS: dict[str, Callable[[BrokerNode], None]] = {
    "kill": BrokerNode.kill,
    "power cut": BrokerNode.lose_power,
    "orderly stop": BrokerNode.stop,
}

ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


def start_again(world: World, end: Callable[[BrokerNode], None]) -> None:
    node = world.sim.brokers["broker-a"]
    end(node)
    node.start()
    world.sim.clients.clear()  # the next request needs a new connection
    world.client("a").beat(subscribes("billing"))


@ends
@pytest.mark.parametrize("target", [1, 3], ids=["elsewhere", "where it stands already"])
def test_a_member_that_slept_through_a_reset_and_a_restart_does_not_undo_it(
    consumed: World, end: Callable[[BrokerNode], None], target: int
) -> None:
    consumed.sim.advance(1)
    reset(consumed, queue_id=0, offset=target)
    start_again(consumed, end)
    commit(consumed, 0, 2)
    assert stored(consumed, 0) == target
    answer = consumed.pull(
        "orders", queue_offset=2, sys_flag=PULL_COMMIT_OFFSET, commit_offset=target + 1
    )
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.header(Pulled).next_begin_offset == target
    assert stored(consumed, 0) == target
    consumed.pull("orders", queue_offset=target)
    commit(consumed, 0, 2)
    assert stored(consumed, 0) == 2, "the reset is over"


@ends
def test_a_reset_that_was_applied_before_a_restart_takes_no_progress_back(
    consumed: World, end: Callable[[BrokerNode], None]
) -> None:
    consumed.client("a").beat(subscribes("billing"))
    reset(consumed, queue_id=0, offset=1)
    for _ in range(2):
        consumed.pull("orders", queue_offset=1)
    commit(consumed, 0, 2)
    consumed.sim.advance(1)
    start_again(consumed, end)
    assert stored(consumed, 0) == 2
    assert consumed.pull("orders", queue_offset=2).code == ResponseCode.SUCCESS
    commit(consumed, 0, 3)
    assert stored(consumed, 0) == 3


def test_the_end_of_a_reset_is_remembered_without_any_commit(consumed: World) -> None:
    consumed.client("a").beat(subscribes("billing"))
    reset(consumed, queue_id=0, offset=1)
    for _ in range(2):
        consumed.pull("orders", queue_offset=1)
    consumed.sim.advance(1)
    start_again(consumed, BrokerNode.kill)
    assert consumed.pull("orders", queue_offset=1).code == ResponseCode.SUCCESS


def test_a_pending_reset_is_saved_with_the_table_when_journals_were_given_up(
    consumed: World,
) -> None:
    reset(consumed, queue_id=0, offset=1)
    for offset in (1, 2, 1, 2):
        commit(consumed, 1, offset)
        consumed.sim.advance(consumed.broker.config.offsets_save_s + 1)
    start_again(consumed, BrokerNode.kill)
    commit(consumed, 0, 3)
    assert [stored(consumed, 0), stored(consumed, 1)] == [1, 2]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "running"])
@pytest.mark.parametrize(
    "deletion", [DeleteTopic(topic="orders"), DeleteGroup(group_name="billing", clean_offset=True)]
)
def test_a_pending_reset_is_forgotten_with_the_progress(
    consumed: World, deletion: RequestHeader, *, is_killed: bool
) -> None:
    consumed.client("b").beat(subscribes("billing"))
    reset(consumed)
    consumed.done(deletion)
    if is_killed:
        start_again(consumed, BrokerNode.kill)
    consumed.topic("orders", 2)
    consumed.group("billing")
    consumed.send("orders", b"new")
    assert consumed.pull("orders").code == ResponseCode.SUCCESS
    commit(consumed, 0, 1)
    assert stored(consumed, 0) == 1
