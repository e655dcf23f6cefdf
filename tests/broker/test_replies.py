"""Request-reply: a consumer's answer is pushed to the client that asked."""

from functools import partial
from typing import Any

from sparrowmq.net.calls import Response
from sparrowmq.net.routes import Reply
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.reply import PushReply, SendReply, SendReplyV2
from sparrowmq.protocol.headers.send import MessageSent
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.properties import format_properties, parse_properties
from tests.broker.world import World

TOPIC = "DefaultCluster_REPLY_TOPIC"


def reply(
    world: World, kind: type = SendReplyV2, queue_id: int = 0, /, **properties: str
) -> Response:
    fields: dict[str, Any] = {
        "producer_group": "answering",
        "topic": TOPIC,
        "default_topic": AUTO_CREATE_TOPIC,
        "default_topic_queue_nums": 1,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 7,
        "flag": 3,
        "properties": format_properties(properties),
    }
    return world.ask(kind(**fields), b"42")


def stored(world: World) -> list[bytes]:
    return world.sim.wait(world.sim.client.pull(TOPIC)).bodies


def test_a_reply_reaches_the_client_that_asked_and_is_stored(world: World) -> None:
    asking = world.client("asking")
    asking.beat(producers=("shop",))
    answer = reply(world, REPLY_TO_CLIENT="asking", CORRELATION_ID="c-1")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.header(MessageSent).queue_offset == 0
    fields = answer.ext_fields or {}
    assert (fields.get("MSG_REGION"), fields.get("TRACE_ON")) == ("DefaultRegion", "true")
    (call,) = asking.answered.of(PushReply)
    assert call.body == b"42"
    assert (call.header.topic, call.header.flag, call.header.born_timestamp) == (TOPIC, 3, 7)
    assert call.header.born_host.startswith("10.0.0.")
    assert call.header.store_host == world.broker.address
    properties = parse_properties(call.header.properties)
    assert properties["CORRELATION_ID"] == "c-1"
    assert int(properties["PUSH_REPLY_TIME"]) <= world.sim.clock()
    assert stored(world) == [b"42"]


def test_long_and_short_headers_mean_the_same(world: World) -> None:
    asking = world.client("asking")
    asking.beat(producers=("shop",))
    for kind in (SendReply, SendReplyV2):
        assert reply(world, kind, REPLY_TO_CLIENT="asking").code == ResponseCode.SUCCESS
    assert len(asking.answered.of(PushReply)) == 2


def test_a_reply_to_no_client_is_refused_and_still_stored(world: World) -> None:
    for properties in ({}, {"REPLY_TO_CLIENT": "gone"}):
        answer = reply(world, SendReplyV2, **properties)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
    assert stored(world) == [b"42", b"42"]


def test_a_client_that_left_is_not_found_any_more(world: World) -> None:
    asking = world.client("asking")
    asking.beat(producers=("shop",))
    asking.disconnect()
    assert world.broker.producers.find("asking") is None
    assert reply(world, REPLY_TO_CLIENT="asking").code == ResponseCode.SYSTEM_ERROR


def test_the_newest_connection_of_a_client_gets_the_reply(world: World) -> None:
    old, new = world.client("old"), world.client("new")
    old.beat(producers=("shop",), client_id="same")
    new.beat(producers=("shop",), client_id="same")
    reply(world, REPLY_TO_CLIENT="same")
    assert (len(old.answered.of(PushReply)), len(new.answered.of(PushReply))) == (0, 1)
    old.disconnect()
    assert reply(world, REPLY_TO_CLIENT="same").code == ResponseCode.SUCCESS


def test_a_reply_that_its_client_does_not_take_or_never_answers_is_refused(world: World) -> None:
    asking = world.client("asking")
    asking.beat(producers=("shop",))
    asking.answered.answers[PushReply] = Reply(code=1, remark="unknown correlation id")
    answer = reply(world, REPLY_TO_CLIENT="asking")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "unknown correlation id" in answer.remark
    asking.answered.answers[PushReply] = None
    began_s = world.sim.now_s
    assert reply(world, REPLY_TO_CLIENT="asking").code == ResponseCode.SYSTEM_ERROR
    assert 10 <= world.sim.now_s - began_s < 11


def test_a_reply_is_stored_in_the_queue_it_names_or_in_any_if_there_is_no_such_queue(
    world: World,
) -> None:
    world.topic(TOPIC, 2)
    ends = partial(world.broker.store.max_offset, TOPIC)
    for _ in range(8):
        reply(world, SendReplyV2, 0)
    assert (ends(0), ends(1)) == (8, 0)
    for queue_id in (1, 2, -1):
        reply(world, SendReplyV2, queue_id)
    assert ends(0) + ends(1) == 11
    assert ends(1) >= 1
    assert ends(2) == 0
