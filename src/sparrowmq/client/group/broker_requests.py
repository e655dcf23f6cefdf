"""What brokers ask of a consumer: notifications, and operators' requests.

A handler finds the consumer by its group. What it may call there is `MemberCalls`, the part of a
consumer that its users do not see; the client asks it for topics and heartbeats, too.
"""

from collections.abc import Awaitable, Callable

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.running_info import ConsumeRates, offsets_of, running_info
from sparrowmq.client.members import ConsumerMember
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import ConsumeDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import NotifyConsumerIdsChanged
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    ResetConsumerOffset,
)
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.offsets_body import ConsumerStatus, ResetOffset

routes: Routes[ClientCore] = Routes()

TryOut = Callable[[MessageExt], Awaitable[ConsumeDirectlyResult]]


class MemberCalls:
    """The `ConsumerMember` that a client keeps while its consumer runs."""

    def __init__(self, member: Membership, rates: ConsumeRates, try_out: TryOut) -> None:
        """`try_out` hands one message to the handler, or raises ValueError if there is none."""
        self._member = member
        self._rates = rates
        self._try_out = try_out

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._member.settings.group

    def topics(self) -> set[str]:
        """Topics whose routes are kept fresh."""
        member = self._member
        return member.subscriptions.topics | {queue.topic for queue in member.held}

    def consumer_data(self) -> ConsumerData:
        """This consumer's part of the heartbeats."""
        return self._member.consumer_data()

    def members_changed(self) -> None:
        """A broker reports that a member joined or left."""
        self._member.wake()

    def queue_freed(self) -> None:
        """A broker reports that a queue held by another member is now free."""
        self._member.wake_at_once()

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group. Raises ValueError in a broadcasting group."""
        await self._member.move(offsets)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """This member's progress in the queues that it holds of a topic."""
        return offsets_of(self._member, topic)

    def running_info(self, *, with_stacks: bool = False) -> ConsumerRunningInfo:
        """What this member is doing."""
        return running_info(self._member, self._rates, with_stacks=with_stacks)

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Hand one message to the handler now; progress does not change. Raises ValueError if there
        is no handler."""
        return await self._try_out(message)


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
