"""Messages with a delivery time can be recalled in time, and only the intended ones."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header_encoding import ext_fields_of
from sparrowmq.protocol.headers.messages import (
    MessageRecalled,
    RecallableSent,
    RecallHandle,
    RecallMessage,
)
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, Sent, bodies, orders_world
from tests.broker.timer_world import send_at, spill


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def recall(world: DeliveryWorld, sent: Sent, topic: str = "orders") -> int:
    assert isinstance(sent, RecallableSent)
    header = RecallMessage(topic=topic, recall_handle=sent.recall_handle, producer_group="g")
    return world.call(header).code


def test_a_recalled_message_is_not_delivered_and_others_are(world: DeliveryWorld) -> None:
    taken_back = send_at(world, EPOCH_MS + 5_700, b"mistake")
    send_at(world, EPOCH_MS + 5_700, b"fine")
    assert recall(world, taken_back) == ResponseCode.SUCCESS
    world.pass_time(60)
    assert bodies(world) == [b"fine"]
    assert world.broker.delivery.timers.recalled == {}


@pytest.mark.parametrize("killed_at_s", [0.0, 5.2, 5.6])
@pytest.mark.parametrize("in_a_run", [False, True])
def test_a_recall_survives_a_kill(world: DeliveryWorld, killed_at_s: float, in_a_run: bool) -> None:
    send_at(world, EPOCH_MS + 5_150, b"fine")
    assert recall(world, send_at(world, EPOCH_MS + 5_700)) == ResponseCode.SUCCESS
    if in_a_run:
        spill(world)
    world.pass_time(killed_at_s)
    world.deliver()
    world.save()
    world.kill()
    world.pass_time(60)
    assert bodies(world) == [b"fine"]


def test_a_recall_answers_with_the_messages_id(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 5_700, UNIQ_KEY="U1")
    assert isinstance(sent, RecallableSent)
    handle = RecallHandle.parse(sent.recall_handle)
    assert handle == ("orders", "broker-a", EPOCH_MS + 5_001, "U1")
    reply = world.call(RecallMessage(topic="orders", recall_handle=sent.recall_handle))
    assert reply.header == MessageRecalled(msg_id="U1")


def test_every_answer_to_a_recall_names_the_region_that_traces_need(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 5_700, UNIQ_KEY="U1")
    assert isinstance(sent, RecallableSent)
    for handle, code, id_field in (
        (sent.recall_handle, ResponseCode.SUCCESS, {"msgId": "U1"}),
        ("nonsense", ResponseCode.ILLEGAL_OPERATION, {}),
    ):
        reply = world.call(RecallMessage(topic="orders", recall_handle=handle))
        assert reply.code == code
        assert reply.header is not None
        assert ext_fields_of(reply.header) == id_field | {"MSG_REGION": "DefaultRegion"}


def test_recalls_of_messages_that_never_come_are_forgotten(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 5_700)
    assert isinstance(sent, RecallableSent)
    handle = RecallHandle("orders", "broker-a", EPOCH_MS + 5_001, "nobody")
    world.call(RecallMessage(topic="orders", recall_handle=str(handle)))
    send_at(world, EPOCH_MS + 60_000)
    world.pass_time(61)
    assert len(bodies(world)) == 2
    assert world.broker.delivery.timers.recalled == {}


def test_bad_handles_are_refused_with_a_reason(world: DeliveryWorld) -> None:
    good = RecallHandle("orders", "broker-a", EPOCH_MS + 5_001, "U1")
    world.send("orders")
    world.send("others")
    end = world.broker.store.max_log_offset
    for topic, handle, text in (
        ("orders", "%%%", "is not a recall handle"),
        ("orders", "", "is not a recall handle"),
        ("orders", urlsafe_b64encode(b"v1 a b").decode(), "is not a recall handle"),
        (
            "orders",
            urlsafe_b64encode(b"v1 orders broker-a x U1").decode(),
            "is not a recall handle",
        ),
        ("others", str(good), "one of topic orders"),
        ("orders", str(good._replace(broker_name="broker-z")), "broker broker-z"),
        ("orders", str(good._replace(time_ms=EPOCH_MS)), "too late"),
        ("orders", str(good._replace(msg_id="a\x01b")), "separator"),
    ):
        reply = world.call(RecallMessage(topic=topic, recall_handle=handle))
        assert reply.code == ResponseCode.ILLEGAL_OPERATION
        assert text in reply.remark
    reply = world.call(RecallMessage(topic="nowhere", recall_handle=str(good)))
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert world.broker.store.max_log_offset == end
