"""What brokers and the client itself call on a consumer: the part that its users do not see."""

from collections.abc import Awaitable, Callable

from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.running_info import ConsumeRates, offsets_of, running_info
from sparrowmq.protocol.connections import ConsumeDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

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
