"""What a client needs to know of the producers and consumers that live in it."""

from dataclasses import dataclass, field
from typing import Protocol

from sparrowmq.protocol.connections import ConsumeDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData, ProducerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt


class Member(Protocol):
    """A producer or consumer that lives in a client."""

    @property
    def group(self) -> str:
        """Its group."""
        ...

    def topics(self) -> set[str]:
        """Topics whose routes it needs."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say of it; None for a producer."""
        ...


class ProducerMember(Member, Protocol):
    """A producer: brokers bring it replies and ask about its transactions."""

    async def check_transaction(
        self, message: MessageExt, question: CheckTransactionState
    ) -> EndTransaction | None:
        """How a transaction ended; None where there are no transactions."""
        ...

    def take_reply(self, correlation_id: str, reply: MessageExt) -> bool:
        """Whether it waited for this reply."""
        ...


class ConsumerMember(Member, Protocol):
    """A consumer: shares queues with the other members of its group."""

    def members_changed(self) -> None:
        """A broker says that somebody came or went."""
        ...

    def queue_freed(self) -> None:
        """A broker says that a queue is free now which another member held."""
        ...

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group. Raises ValueError where that cannot be."""
        ...

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Progress in the queues of a topic, for operators."""
        ...

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """What it is doing, for operators."""
        ...

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Consume a message an operator chose. Raises ValueError where there is no handler."""
        ...


@dataclass(frozen=True, slots=True)
class Members:
    """Who lives in a client, by group."""

    producers: dict[str, ProducerMember] = field(default_factory=dict)
    consumers: dict[str, ConsumerMember] = field(default_factory=dict)

    def topics(self) -> set[str]:
        """Topics whose routes somebody needs."""
        members: list[Member] = [*self.producers.values(), *self.consumers.values()]
        return set[str]().union(*(member.topics() for member in members))

    def heartbeat(self, client_id: str) -> HeartbeatData:
        """What brokers are told of them."""
        datas = (member.consumer_data() for member in self.consumers.values())
        return HeartbeatData(
            client_id=client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in self.producers),
            consumer_data_set=tuple(data for data in datas if data is not None),
        )
