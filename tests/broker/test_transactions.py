"""Transactions: delivered when they are committed, and never otherwise."""

from collections.abc import Iterator

import msgspec
import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from sparrowmq.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.broker.delivery_world import DeliveryWorld, orders_world
from tests.broker.transaction_world import GROUP, bodies, end, half, producer


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def test_a_half_message_is_not_delivered(world: DeliveryWorld) -> None:
    half(world)
    world.pass_time(1)
    assert bodies(world) == []


def test_a_committed_message_is_delivered_as_it_was_sent(world: DeliveryWorld) -> None:
    sent = half(world, TAGS="t", KEYS="k", mine="yes", UNIQ_KEY="U1")
    assert sent.queue_id == 1
    assert sent.transaction_id == "U1"
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    (message,) = world.messages("orders", 1)
    assert (message.body, message.tags, message.keys) == (b"an order", "t", ("k",))
    assert message.user_properties["mine"] == "yes"
    assert message.flag == 7
    assert message.sys_flag & 0xC == TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == OffsetId.parse(sent.msg_id).log_offset


def test_half_messages_and_operations_lie_as_in_apaches_store(world: DeliveryWorld) -> None:
    sent = half(world, UNIQ_KEY="U1", REAL_TOPIC="forged", TRANSACTION_CHECK_TIMES="14")
    (waiting,) = world.messages(TRANS_HALF_TOPIC)
    assert waiting.sys_flag & 0xC == TRANSACTION_NONE
    assert waiting.properties["REAL_TOPIC"] == "orders"
    assert waiting.properties["REAL_QID"] == "1"
    assert waiting.properties["__transactionId__"] == "U1"
    assert waiting.properties["TRAN_MSG"] == "true"
    assert "TRANSACTION_CHECK_TIMES" not in waiting.properties, "never believed"
    end(world, sent, TRANSACTION_ROLLBACK)
    (operation,) = world.messages(TRANS_OP_HALF_TOPIC)
    assert operation.body == b"0,"
    assert operation.tags == "d"


def test_the_flag_that_java_clients_set_is_taken_off_a_half_message(world: DeliveryWorld) -> None:
    header = world.send_header("orders", 1, {"TRAN_MSG": "true", "PGROUP": GROUP})
    reply = world.call(msgspec.structs.replace(header, sys_flag=TRANSACTION_PREPARED), b"x")
    assert reply.code == ResponseCode.SUCCESS
    (waiting,) = world.messages(TRANS_HALF_TOPIC)
    assert waiting.sys_flag & 0xC == TRANSACTION_NONE


def test_a_rolled_back_message_is_never_delivered(world: DeliveryWorld) -> None:
    peer = producer(world)
    assert end(world, half(world), TRANSACTION_ROLLBACK).code == ResponseCode.SUCCESS
    world.pass_time(600)
    assert bodies(world) == []
    assert peer.calls == []


@pytest.mark.parametrize("second", [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
@pytest.mark.parametrize("first", [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
@pytest.mark.parametrize("killed", [False, True])
def test_ending_a_transaction_again_changes_nothing(
    world: DeliveryWorld, first: int, second: int, killed: bool
) -> None:
    sent = half(world)
    end(world, sent, first)
    before = bodies(world)
    if killed:
        world.kill()
    log_end = world.broker.store.max_log_offset
    assert end(world, sent, second).code == ResponseCode.SUCCESS
    assert bodies(world) == before
    assert world.broker.store.max_log_offset == log_end


def test_a_delay_counts_from_the_commit_on(world: DeliveryWorld) -> None:
    sent = half(world, DELAY="1")
    world.pass_time(3)
    assert world.messages(SCHEDULE_TOPIC, 0) == []
    end(world, sent, TRANSACTION_COMMIT)
    world.now_ms += 999
    world.deliver()
    assert bodies(world) == []
    world.now_ms += 1
    world.deliver()
    assert bodies(world) == [b"an order"]
    world.pass_time(100)
    assert bodies(world) == [b"an order"]


def test_a_producer_without_the_group_property_is_identified_by_its_header(
    world: DeliveryWorld,
) -> None:
    sent = world.send("orders", TRAN_MSG="true", queue_id=1)
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"body"]


def test_what_does_not_fit_the_half_message_is_refused(world: DeliveryWorld) -> None:
    sent = half(world)
    plain = world.send("orders", b"plain")
    wrong_offset = msgspec.structs.replace(sent, queue_offset=5)
    log_end = world.broker.store.max_log_offset
    for reply, text in (
        (end(world, sent, TRANSACTION_COMMIT, group="others"), "not one of group others"),
        (end(world, wrong_offset, TRANSACTION_COMMIT), "queue offset 0, not 5"),
        (end(world, plain, TRANSACTION_COMMIT), "no half message at"),
    ):
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert text in reply.remark
    assert end(world, sent, 5).code == ResponseCode.INVALID_PARAMETER
    assert end(world, sent, TRANSACTION_NONE).code == ResponseCode.SUCCESS
    assert world.broker.store.max_log_offset == log_end
    assert len(world.broker.delivery.halves) == 1


def test_a_bad_delay_is_refused_before_the_transaction_begins(world: DeliveryWorld) -> None:
    reply = world.try_send("orders", TRAN_MSG="true", PGROUP=GROUP, DELAY="soon")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(world.broker.delivery.halves) == 0


def test_a_commit_to_a_topic_that_is_gone_ends_in_the_dead_letters(world: DeliveryWorld) -> None:
    sent = half(world)
    world.broker.topics.remove("orders")
    reply = end(world, sent, TRANSACTION_COMMIT)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic orders no longer exists" in reply.remark
    (dead,) = world.messages(f"%DLQ%{GROUP}")
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "orders"
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert len(world.messages(f"%DLQ%{GROUP}")) == 1


def test_a_committed_message_does_not_tell_where_it_waited(world: DeliveryWorld) -> None:
    sent = half(world, mine="yes")
    end(world, sent, TRANSACTION_COMMIT)
    (message,) = world.messages("orders", 1)
    assert message.properties["mine"] == "yes"
    assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()
