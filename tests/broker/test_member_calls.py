"""Operators' requests reach the live member they are about."""

from sparrowmq.net.routes import Reply
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    InvokeConsumerStatus,
)
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.offsets_body import ConsumerStatus
from tests.broker.world import TalkingClient, World, queue, subscribes


def members(world: World) -> tuple[TalkingClient, TalkingClient]:
    a, b = world.client("a"), world.client("b")
    for member in (a, b):
        member.beat(subscribes("billing"))
    return a, b


def test_running_info_comes_from_the_requested_member(world: World) -> None:
    a, b = members(world)
    b.answered.answers[GetConsumerRunningInfo] = Reply(body=b'{"jstack":"here"}')
    header = GetConsumerRunningInfo(consumer_group="billing", client_id="b", jstack_enable=True)
    assert world.done(header).body == b'{"jstack":"here"}'
    (call,) = b.answered.of(GetConsumerRunningInfo)
    assert call.header == header
    assert a.answered.of(GetConsumerRunningInfo) == []


def test_a_refusal_of_the_member_is_passed_back(world: World) -> None:
    _, b = members(world)
    b.answered.answers[GetConsumerRunningInfo] = Reply(code=7, remark="not now")
    answer = world.ask(GetConsumerRunningInfo(consumer_group="billing", client_id="b"))
    assert (answer.code, answer.remark) == (7, "not now")


def test_a_member_that_is_not_there_is_named(world: World) -> None:
    members(world)
    for group, client_id in (("billing", "c"), ("nobody", "a")):
        answer = world.ask(GetConsumerRunningInfo(consumer_group=group, client_id=client_id))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert client_id in answer.remark


def test_a_call_to_a_silent_member_times_out_after_10_s(world: World) -> None:
    a, _ = members(world)
    a.answered.answers[GetConsumerRunningInfo] = None
    began_s = world.sim.now_s
    answer = world.ask(GetConsumerRunningInfo(consumer_group="billing", client_id="a"))
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert 10 <= world.sim.now_s - began_s < 11


def test_a_member_that_dies_while_it_is_asked_ends_the_question(world: World) -> None:
    a, _ = members(world)
    a.answered.answers[GetConsumerRunningInfo] = None
    header = GetConsumerRunningInfo(consumer_group="billing", client_id="a")
    question = world.sim.client.call(header, timeout_s=30)
    world.sim.until_idle()
    a.host.kill()
    assert world.sim.wait(question).code == ResponseCode.SYSTEM_ERROR
    assert world.sim.now_s < 5


def test_a_message_is_consumed_directly_by_one_member(world: World) -> None:
    a, _ = members(world)
    sent = world.sim.wait(world.sim.client.send("orders", b"hello", KEYS="k"))
    a.answered.answers[ConsumeMessageDirectly] = Reply(body=b'{"consumeResult":"CR_SUCCESS"}')
    header = ConsumeMessageDirectly(
        consumer_group="billing", client_id="a", msg_id=sent.msg_id, topic="orders"
    )
    assert world.done(header).body == b'{"consumeResult":"CR_SUCCESS"}'
    (call,) = a.answered.of(ConsumeMessageDirectly)
    assert call.header.broker_name == "broker-a"
    assert (call.header.topic_sys_flag, call.header.group_sys_flag) == (0, 0)
    (message,) = decode_messages(call.body)
    assert (message.body, message.keys) == (b"hello", ("k",))


def test_a_message_that_is_not_there_cannot_be_consumed(world: World) -> None:
    members(world)
    for msg_id, code in (
        ("7F00000100002A9F" + "0" * 16, ResponseCode.SYSTEM_ERROR),
        ("nonsense", ResponseCode.INVALID_PARAMETER),
    ):
        header = ConsumeMessageDirectly(consumer_group="billing", client_id="a", msg_id=msg_id)
        assert world.ask(header).code == code


def status(world: World, **more: str) -> dict[str, dict[MessageQueue, int]]:
    header = InvokeConsumerStatus(topic="orders", group="billing", **more)
    return world.read(header, ConsumerStatus).consumer_table


def test_the_status_of_all_members_is_collected(world: World) -> None:
    a, b = members(world)
    for member, offset in ((a, 5), (b, 7)):
        body = ConsumerStatus(message_queue_table={queue("orders", 0): offset}).to_json()
        member.answered.answers[GetConsumerStatus] = Reply(body=body)
    assert status(world) == {"a": {queue("orders", 0): 5}, "b": {queue("orders", 0): 7}}
    assert status(world, client_addr="b") == {"b": {queue("orders", 0): 7}}


def test_members_without_a_valid_answer_are_left_out(world: World) -> None:
    a, b = members(world)
    a.answered.answers[GetConsumerStatus] = Reply(body=b"?")
    b.answered.answers[GetConsumerStatus] = None
    began_s = world.sim.now_s
    assert status(world) == {}
    assert world.sim.now_s - began_s < 6, "they are asked at the same time"


def test_the_status_of_a_group_that_is_offline_is_refused(world: World) -> None:
    answer = world.ask(InvokeConsumerStatus(topic="orders", group="billing"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
