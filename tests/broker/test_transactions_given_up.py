"""Transactions without an answer are given up, and resumed when an operator asks for it."""

from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.transactions import ResumeCheckHalfMessage
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NONE
from tests.broker.delivery_world import DeliveryWorld, orders_world
from tests.broker.transaction_world import GROUP, answer, bodies, end, half, producer


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def test_fifteen_unknown_answers_set_a_transaction_aside(world: DeliveryWorld) -> None:
    peer = producer(world)
    half(world, UNIQ_KEY="U1", TAGS="t")
    other = half(world, b"another")
    world.pass_time(6 + 14 * 30)
    world.deliver()
    assert len(peer.calls) == 30
    answer(world, peer, TRANSACTION_NONE)
    assert world.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
    world.pass_time(31)
    world.deliver()
    aside = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert [message.body for message in aside] == [b"an order", b"another"]
    assert [m.properties["TRANSACTION_CHECK_TIMES"] for m in aside] == ["15", "15"]
    assert aside[0].tags == "t"
    world.pass_time(600)
    assert len(peer.calls) == 30
    assert len(world.broker.delivery.halves) == 0
    assert end(world, other, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == []


def test_an_operator_can_resume_checks_of_a_transaction_that_was_set_aside(
    world: DeliveryWorld,
) -> None:
    peer = producer(world)
    half(world, b"forgotten")
    world.pass_time(15 * 30 + 60)
    (kept,) = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    asked = len(peer.calls)
    where = offset_id(world.broker.store_host, kept.log_offset)
    assert world.call(ResumeCheckHalfMessage(msg_id=where)).code == ResponseCode.SUCCESS
    world.kill()
    peer = producer(world)
    world.pass_time(6)
    world.deliver()
    assert asked == 15
    assert len(peer.calls) == 1
    assert answer(world, peer, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"forgotten"]


@pytest.mark.parametrize("msg_id", ["nonsense", "half", "7F00000100002A9F0000000000FFFFFF"])
def test_only_transactions_that_were_set_aside_are_resumed(
    world: DeliveryWorld, msg_id: str
) -> None:
    sent = half(world, b"pending")
    header = ResumeCheckHalfMessage(msg_id=sent.msg_id if msg_id == "half" else msg_id)
    assert world.call(header).code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    assert len(world.broker.delivery.halves) == 1


def test_a_half_message_without_room_for_the_count_is_set_aside(world: DeliveryWorld) -> None:
    peer = producer(world)
    room = world.config.max_properties_bytes
    for spare in range(480, 0, -20):
        reply = world.try_send(
            "orders", b"x", TRAN_MSG="true", PGROUP=GROUP, x="y" * (room - spare)
        )
        if reply.code != ResponseCode.SUCCESS:
            break
    world.pass_time(7)
    world.deliver()
    asked, aside = len(peer.calls), world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert asked > 0
    assert len(aside) > 0
    assert len(world.broker.delivery.halves) == asked
    for topic in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
        records_of = records(world.broker.store, topic, 0)
        assert max(len(record.properties) for record in records_of) <= room
