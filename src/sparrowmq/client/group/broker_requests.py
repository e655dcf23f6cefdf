"""Requests that brokers send to consumers: notifications, and operators' requests."""

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.members import ConsumerMember
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import NotifyConsumerIdsChanged
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    ResetConsumerOffset,
)
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.offsets_body import ConsumerStatus, ResetOffset

routes: Routes[ClientCore] = Routes()


@routes.on(NotifyConsumerIdsChanged)
def consumer_ids_changed(client: ClientCore, request: Request[NotifyConsumerIdsChanged]) -> Reply:
    """Rebalance now, or take what has become free."""
    member = client.consumers.get(request.header.consumer_group)
    if member is None:
        return Reply()
    if request.header.is_freed:
        member.queue_freed()
    else:
        member.members_changed()
    return Reply()


@routes.on(ResetConsumerOffset)
async def reset_offset(client: ClientCore, request: Request[ResetConsumerOffset]) -> Reply:
    """Drop the queues and restart them where the operator says. One-way: refusals are logged."""
    header = request.header
    try:
        table = ResetOffset.from_json(request.body).offset_table
        offsets = {queue: at for queue, at in table.items() if queue.topic == header.topic}
        await _member(client, header.group).reset_offsets(offsets)
    except (ProtocolError, ValueError, RequestRefused) as error:
        text = f"no reset of {header.group} in {header.topic}: {error}"
        client.log.warning(text)
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    return Reply()


@routes.on(GetConsumerStatus)
def get_consumer_status(client: ClientCore, request: Request[GetConsumerStatus]) -> Reply:
    """This member's offsets in a topic."""
    offsets = _member(client, request.header.group).offsets_of(request.header.topic)
    return Reply(body=ConsumerStatus(message_queue_table=offsets).to_json())


@routes.on(GetConsumerRunningInfo)
def get_consumer_running_info(
    client: ClientCore, request: Request[GetConsumerRunningInfo]
) -> Reply:
    """What this member is doing."""
    header = request.header
    member = _member(client, header.consumer_group)
    return Reply(body=member.running_info(with_stacks=header.jstack_enable).to_json())


@routes.on(ConsumeMessageDirectly)
async def consume_message_directly(
    client: ClientCore, request: Request[ConsumeMessageDirectly]
) -> Reply:
    """Hand one message to the handler now, and report the outcome."""
    header = request.header
    member = _member(client, header.consumer_group)
    try:
        messages = decode_messages(request.body, header.broker_name or "")
        if not messages:
            raise ValueError("the request holds no message")
        result = await member.consume_directly(messages[0])
    except (ProtocolError, ValueError) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return Reply(body=result.to_json())


def _member(client: ClientCore, group: str) -> ConsumerMember:
    member = client.consumers.get(group)
    if member is None:
        text = f"client {client.client_id} has no consumer of group {group}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return member
