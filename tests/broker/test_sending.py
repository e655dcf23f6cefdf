"""Sending: where messages end up, and what is refused with which code."""

import pytest

from sparrowmq.net.calls import Response
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import (
    MessageSent,
    SendBatchMessage,
    SendMessage,
    SendMessageV2,
    SpecialMessageSent,
)
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from tests.broker.world import World, world_with


def send(
    world: World, topic: str = "orders", body: bytes = b"hello", **changes: object
) -> Response:
    return world.ask(header_of(SendMessageV2, topic, **changes), body)


def header_of(kind: type, topic: str = "orders", **changes: object) -> SendMessageV2:
    fields: dict[str, object] = {
        "producer_group": "shop",
        "topic": topic,
        "default_topic": AUTO_CREATE_TOPIC,
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
    }
    header: SendMessageV2 = kind(**(fields | changes))
    return header


def test_a_message_comes_back_as_it_was_sent(world: World) -> None:
    send(world, properties="TAGS\x01paid\x02KEYS\x01o-1\x02colour\x01red", flag=7)
    (message,) = world.sim.wait(world.sim.client.pull("orders")).messages
    assert (message.body, message.tags, message.flag) == (b"hello", "paid", 7)
    assert message.properties["colour"] == "red"
    assert message.properties["CLUSTER"] == "DefaultCluster"


def test_long_and_short_headers_mean_the_same(world: World) -> None:
    for kind in (SendMessage, SendMessageV2):
        assert world.ask(header_of(kind), b"x").code == ResponseCode.SUCCESS
    assert world.broker.store.max_offset("orders", 0) == 2


def test_offsets_count_per_queue_and_the_id_names_the_place(world: World) -> None:
    first = send(world).header(MessageSent)
    second = send(world, queue_id=1).header(MessageSent)
    third = send(world).header(MessageSent)
    assert [sent.queue_offset for sent in (first, second, third)] == [0, 0, 1]
    assert len({sent.msg_id for sent in (first, second, third)}) == 3
    record = world.broker.store.read_message(int(third.msg_id[-16:], 16))
    assert record is not None


def test_a_message_without_unique_id_gets_one(world: World) -> None:
    sent = send(world).header(MessageSent)
    (message,) = world.sim.wait(world.sim.client.pull("orders")).messages
    assert message.properties["UNIQ_KEY"] == sent.transaction_id
    assert len(sent.transaction_id) == 32


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        (SendMessage, ""),
        (SendMessageV2, ""),
        (SendBatchMessage, ""),
        (SendMessageV2, "DELAY\x013\x02"),
        (SendMessageV2, "TIMER_DELAY_SEC\x0160\x02"),
        (SendMessageV2, "TRAN_MSG\x01true\x02PGROUP\x01shop\x02"),
    ],
    ids=["long", "short", "batch", "delayed", "timed", "half"],
)
def test_every_send_is_answered_with_the_fields_traces_need(
    world: World, kind: type, properties: str
) -> None:
    # The Go client sends no trace of a message whose answer lacks one of the two.
    is_batch = kind is SendBatchMessage
    body = batch(b"1", b"2") if is_batch else b"x"
    answer = world.ask(header_of(kind, properties=properties, batch=is_batch), body)
    assert answer.code == ResponseCode.SUCCESS
    fields = answer.ext_fields or {}
    assert (fields.get("MSG_REGION"), fields.get("TRACE_ON")) == ("DefaultRegion", "true")


def test_a_new_topic_has_the_queues_the_producer_asks_for_but_at_most_the_default(
    world: World,
) -> None:
    send(world, "few", default_topic_queue_nums=3)
    send(world, "many", default_topic_queue_nums=1000)
    few, many = world.broker.topics.get("few"), world.broker.topics.get("many")
    assert few is not None and many is not None
    assert (few.write_queue_nums, few.perm) == (3, 6)
    assert many.write_queue_nums == 8


def test_no_topic_is_created_when_that_is_switched_off() -> None:
    with world_with(auto_create_topic=False) as world:
        answer = send(world)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert "topic create orders" in answer.remark
        assert "orders" not in world.broker.topics


def test_no_topic_is_created_over_the_limit() -> None:
    with world_with(max_topics=15) as world:
        while len(world.broker.topics) < 15:
            assert send(world, f"t{len(world.broker.topics)}").code == ResponseCode.SUCCESS
        answer = send(world, "one-too-many")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "at most 15" in answer.remark


@pytest.mark.parametrize("topic", ["no spaces", "", "x" * 128, "a/b", "ümlaut"])
def test_a_bad_topic_name_is_refused(world: World, topic: str) -> None:
    assert send(world, topic).code == ResponseCode.INVALID_PARAMETER
    assert topic not in world.broker.topics


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
    ],
)
def test_the_brokers_own_topics_take_no_messages(world: World, topic: str) -> None:
    assert send(world, topic).code == ResponseCode.NO_PERMISSION


def test_the_trace_topic_takes_the_clients_traces(world: World) -> None:
    assert send(world, "RMQ_SYS_TRACE_TOPIC").code == ResponseCode.SUCCESS


def test_a_queue_that_does_not_exist_is_refused_and_a_negative_one_is_chosen(world: World) -> None:
    world.topic("orders", 2)
    answer = send(world, queue_id=2)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "allowed are 0 to 1" in answer.remark
    chosen = {send(world, queue_id=-1).header(MessageSent).queue_id for _ in range(40)}
    assert chosen == {0, 1}


def test_a_client_with_an_old_route_may_still_send_to_a_topic_that_became_read_only(
    world: World,
) -> None:
    send(world)
    world.topic("orders", perm=4)
    assert send(world).code == ResponseCode.SUCCESS


def test_a_client_with_an_old_route_may_still_send_to_a_queue_that_can_be_read(
    world: World,
) -> None:
    world.done(CreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=2, perm=6))
    assert send(world, queue_id=3).code == ResponseCode.SUCCESS
    assert send(world, queue_id=4).code == ResponseCode.INVALID_PARAMETER


def test_a_body_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    with world_with(max_message_bytes=1000) as world:
        assert send(world, body=b"x" * 1000).code == ResponseCode.SUCCESS
        answer = send(world, body=b"x" * 1001)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "1001 bytes, at most 1000" in answer.remark


def test_properties_over_the_limit_are_refused(world: World) -> None:
    answer = send(world, properties=f"k\x01{'v' * 33_000}")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert world.broker.store.max_offset("orders", 0) == 0


def test_a_busy_broker_refuses_until_it_has_caught_up(world: World) -> None:
    send(world)
    world.broker.busy_reason = "the broker is behind"
    answer = send(world)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "the broker is behind")
    world.sim.advance(1)
    assert send(world).code == ResponseCode.SUCCESS


# ---- batches


def batch(*bodies: bytes) -> bytes:
    return encode_batch([(0, body, b"") for body in bodies])


def test_a_batch_gets_contiguous_offsets_and_an_id_for_each_message(world: World) -> None:
    send(world)
    answer = world.ask(header_of(SendBatchMessage, batch=True), batch(b"1", b"2", b"3"))
    sent = answer.header(SpecialMessageSent)
    assert sent.queue_offset == 1
    assert len(sent.msg_id.split(",")) == 3
    assert world.sim.wait(world.sim.client.pull("orders", offset=1)).bodies == [b"1", b"2", b"3"]


def test_the_messages_of_a_batch_keep_their_own_unique_ids(world: World) -> None:
    # Java's client gives the batch itself an id as well, in the header.
    header = header_of(SendBatchMessage, batch=True, properties="UNIQ_KEY\x01B\x02WAIT\x01true\x02")
    own = [f"UNIQ_KEY\x01{number}\x02WAIT\x01true\x02".encode() for number in range(3)]
    world.ask(header, encode_batch([(0, b"x", properties) for properties in own]))
    messages = world.sim.wait(world.sim.client.pull("orders")).messages
    assert [message.properties["UNIQ_KEY"] for message in messages] == ["0", "1", "2"]


def test_a_batch_by_flag_is_the_same_as_a_batch_by_code(world: World) -> None:
    answer = world.ask(header_of(SendMessageV2, batch=True), batch(b"1", b"2"))
    assert answer.code == ResponseCode.SUCCESS
    assert world.broker.store.max_offset("orders", 0) == 2


@pytest.mark.parametrize("body", [b"", b"\0\0", batch(b"1")[:-1], batch(b"1") + b"\0\0\0\x09"])
def test_a_batch_that_cannot_be_read_is_refused_as_a_whole(world: World, body: bytes) -> None:
    answer = world.ask(header_of(SendBatchMessage, batch=True), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert world.broker.store.max_offset("orders", 0) == 0


def test_a_batch_over_the_limit_is_refused_as_a_whole() -> None:
    with world_with(max_message_bytes=500) as world:
        body = batch(b"x" * 300, b"y" * 300)
        answer = world.ask(header_of(SendBatchMessage, batch=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert world.broker.store.max_offset("orders", 0) == 0


def test_a_batch_cannot_go_to_a_retry_topic(world: World) -> None:
    answer = world.ask(header_of(SendBatchMessage, "%RETRY%billing", batch=True), batch(b"1"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_port_two_below_leads_to_the_same_broker(world: World) -> None:
    host, port = world.sim.brokers["broker-a"].address.rsplit(":", 1)
    sent = world.sim.client.send("orders", b"by the VIP channel", address=f"{host}:{int(port) - 2}")
    assert world.sim.wait(sent).queue_offset == 0
    assert world.broker.store.max_offset("orders", 0) == 1
