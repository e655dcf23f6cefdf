"""Pulling: what is found, and the answers to a pull that finds nothing or is not allowed."""

import pytest

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.admin import UpdateGroupForbidden
from sparrowmq.protocol.headers.pull import LitePullMessage, Pulled
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from tests.broker.world import World, broadcasts, subscribes, world_with


def bodies(answer: Response) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_messages(answer.body)]


def test_a_pull_returns_messages_in_order_and_the_next_offset(live: World) -> None:
    answer = live.pull("orders", queue_offset=1)
    assert bodies(answer) == [b"created", b"paid"]
    pulled = answer.header(Pulled)
    assert (pulled.next_begin_offset, pulled.min_offset, pulled.max_offset) == (3, 0, 3)


def test_a_pull_returns_at_most_the_number_of_messages_it_asks_for(live: World) -> None:
    assert len(bodies(live.pull("orders", max_msg_nums=2))) == 2
    assert len(bodies(live.pull("orders", max_msg_nums=0))) == 1


def test_a_pull_returns_at_most_the_bytes_it_asks_for_but_at_least_one_message(live: World) -> None:
    assert len(bodies(live.pull("orders", max_msg_bytes=1))) == 1


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_a_pull_outside_of_the_queue_is_sent_into_it(
    live: World, offset: int, code: int, next_offset: int
) -> None:
    answer = live.pull("orders", queue_offset=offset)
    assert answer.code == code
    assert answer.header(Pulled).next_begin_offset == next_offset


def test_a_pull_from_an_empty_queue_finds_nothing_at_0_and_is_moved_there_otherwise(
    live: World,
) -> None:
    assert live.pull("orders", queue_id=1).code == ResponseCode.PULL_NOT_FOUND
    answer = live.pull("orders", queue_id=1, queue_offset=9)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.header(Pulled).next_begin_offset == 0


def test_a_group_gets_only_the_tags_of_its_heartbeat(live: World) -> None:
    live.client("b").beat(subscribes("audit", expression="created"))
    assert bodies(live.pull("orders", "audit")) == [b"created"]


def test_a_filter_that_rejects_everything_moves_the_offset_on(live: World) -> None:
    live.client("b").beat(subscribes("audit", expression="cancelled"))
    answer = live.pull("orders", "audit")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.header(Pulled).next_begin_offset == 3


def test_a_pull_may_carry_its_own_filter(live: World) -> None:
    flag = PULL_SUBSCRIPTION
    own = live.pull("orders", "nobody", sys_flag=flag, subscription="created")
    assert bodies(own) == [b"created"]
    sql = live.pull(
        "orders", "nobody", sys_flag=flag, subscription="TAGS = 'paid'", expression_type="SQL92"
    )
    assert bodies(sql) == [b"paid", b"paid"]


@pytest.mark.parametrize(
    ("expression", "kind"), [("a = ", "SQL92"), ("a > 'x", "SQL92"), ("x", "GROOVY"), ("", "SQL92")]
)
def test_a_filter_that_cannot_be_read_is_refused(live: World, expression: str, kind: str) -> None:
    answer = live.pull(
        "orders",
        sys_flag=PULL_SUBSCRIPTION,
        subscription=expression,
        expression_type=kind,
    )
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_group_has_to_be_alive_and_to_subscribe(live: World) -> None:
    assert live.pull("orders", "nobody").code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    live.topic("refunds")
    assert live.pull("refunds").code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_a_pull_newer_than_the_heartbeat_has_to_wait_for_it(live: World) -> None:
    assert live.pull("orders", sub_version=2).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    live.client("b").beat(subscribes("billing", version=2))
    assert live.pull("orders", sub_version=2).code == ResponseCode.SUCCESS


def test_a_topic_or_queue_that_does_not_exist_is_refused(live: World) -> None:
    assert live.pull("missing").code == ResponseCode.TOPIC_NOT_EXIST
    for queue_id in (-1, 2):
        answer = live.pull("orders", queue_id=queue_id)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "allowed are 0 to 1" in answer.remark


def test_a_topic_that_cannot_be_read_is_refused(live: World) -> None:
    live.topic("orders", perm=2)
    assert live.pull("orders").code == ResponseCode.NO_PERMISSION


def test_a_group_that_is_switched_off_is_refused(live: World) -> None:
    live.group("billing", consume_enable=False)
    assert live.pull("orders").code == ResponseCode.NO_PERMISSION


def test_a_group_that_may_not_broadcast_is_refused(live: World) -> None:
    live.group("audit", consume_broadcast_enable=False)
    live.client("b").beat(broadcasts("audit"))
    assert live.pull("orders", "audit").code == ResponseCode.NO_PERMISSION


def test_a_group_that_is_forbidden_a_topic_is_refused_also_after_a_restart(live: World) -> None:
    live.done(UpdateGroupForbidden(group="billing", topic="orders", readable=False))
    assert live.pull("orders").code == ResponseCode.NO_PERMISSION
    live.sim.brokers["broker-a"].restart()
    live.client("b").beat(subscribes("billing"))
    assert live.pull("orders").code == ResponseCode.NO_PERMISSION
    live.done(UpdateGroupForbidden(group="billing", topic="orders", readable=True))
    assert live.pull("orders").code == ResponseCode.SUCCESS


def test_an_unknown_group_is_refused_if_auto_creation_is_off() -> None:
    with world_with(auto_create_group=False) as world:
        world.topic("orders")
        assert world.pull("orders").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_pull_carries_progress_forward_only(live: World) -> None:
    live.pull("orders", queue_offset=2, sys_flag=PULL_COMMIT_OFFSET, commit_offset=2)
    assert live.broker.offsets.get("billing", "orders", 0) == 2
    live.pull("orders", queue_offset=2, sys_flag=PULL_COMMIT_OFFSET, commit_offset=1)
    assert live.broker.offsets.get("billing", "orders", 0) == 2
    live.pull("orders", queue_offset=2, commit_offset=3)
    assert live.broker.offsets.get("billing", "orders", 0) == 2


def test_a_lite_pull_is_a_pull(live: World) -> None:
    header = LitePullMessage(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    assert len(bodies(live.ask(header))) == 3
