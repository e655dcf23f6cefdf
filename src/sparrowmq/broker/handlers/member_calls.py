"""Requests of operators that only a live consumer can answer."""

import asyncio

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import LiveMember
from sparrowmq.net.errors import CallTimedOut, ConnectionLost, NetError, RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    InvokeConsumerStatus,
)
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import ConsumerStatus

routes: Routes[Broker] = Routes()

_CALL_S = 10.0
_STATUS_S = 5.0


@routes.on(GetConsumerRunningInfo)
async def get_consumer_running_info(
    broker: Broker, request: Request[GetConsumerRunningInfo]
) -> Reply:
    """Return what a member reports about itself."""
    header = request.header
    member = _member(broker, header.consumer_group, header.client_id)
    return await _pass_on(member, header, request.body)


@routes.on(ConsumeMessageDirectly)
async def consume_message_directly(
    broker: Broker, request: Request[ConsumeMessageDirectly]
) -> Reply:
    """Make a member consume a stored message now, and answer with the outcome."""
    header = request.header
    member = _member(broker, header.consumer_group, header.client_id or "")
    record = _record(broker, header.msg_id or "")
    topic = broker.topics.get(header.topic or "")
    group = broker.groups.get(header.consumer_group)
    complete = msgspec.structs.replace(
        header,
        broker_name=broker.config.broker_name,
        topic_sys_flag=None if topic is None else topic.topic_sys_flag,
        group_sys_flag=None if group is None else group.group_sys_flag,
    )
    return await _pass_on(member, complete, record)


def _record(broker: Broker, msg_id: str) -> bytes:
    try:
        place = OffsetId.parse(msg_id)
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    record = broker.store.read_message(place.log_offset)
    if record is None:
        text = f"no message with id {msg_id} on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return record


def _member(broker: Broker, group_name: str, client_id: str) -> LiveMember:
    group = broker.consumers.group(group_name)
    member = None if group is None else group.find(client_id)
    if member is None:
        text = f"client {client_id} of group {group_name} is not online on this broker"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return member


async def _pass_on(member: LiveMember, header: RequestHeader, body: bytes) -> Reply:
    try:
        answer = await member.connection.call(header, body, timeout_s=_CALL_S)
    except CallTimedOut as error:
        raise RequestRefused(ResponseCode.CONSUME_MSG_TIMEOUT, str(error)) from error
    except ConnectionLost as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return Reply(body=answer.body, code=answer.code, remark=answer.remark)


@routes.on(InvokeConsumerStatus)
async def get_consumer_status(broker: Broker, request: Request[InvokeConsumerStatus]) -> Reply:
    """Return the positions in a topic that a group's members, or one of them, report."""
    header = request.header
    group = broker.consumers.group(header.group)
    if group is None:
        text = f"group {header.group} has no live member on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    members = [
        member
        for member in group.members.values()
        if not header.client_addr or member.client_id == header.client_addr
    ]
    question = GetConsumerStatus(topic=header.topic, group=header.group)
    answers = await asyncio.gather(*(_ask(member, question) for member in members))
    table = {
        member.client_id: offsets
        for member, offsets in zip(members, answers, strict=True)
        if offsets is not None
    }
    return Reply(body=ConsumerStatus(consumer_table=table).to_json())


async def _ask(member: LiveMember, question: GetConsumerStatus) -> dict[MessageQueue, int] | None:
    """A member's offsets; None if it gives no valid answer: it is left out, as in Apache."""
    try:
        answer = await member.connection.call(question, timeout_s=_STATUS_S)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return ConsumerStatus.from_json(answer.body).message_queue_table
    except (NetError, BodyError):
        return None
