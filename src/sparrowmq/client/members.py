"""The producers and consumers of a client, and all consumers of this process."""

import asyncio
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from sparrowmq.client.subscriptions import Subscriptions, differences
from sparrowmq.protocol.connections import ConsumeDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData, ProducerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt


class Member(Protocol):
    """A producer or consumer of a client."""

    @property
    def group(self) -> str:
        """Its group."""
        ...

    def topics(self) -> set[str]:
        """Topics whose routes it needs."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """Its part of the heartbeats; None for a producer."""
        ...


class ProducerMember(Member, Protocol):
    """A producer: brokers deliver replies to it and ask about its transactions."""

    async def check_transaction(
        self, message: MessageExt, question: CheckTransactionState
    ) -> EndTransaction | None:
        """How a transaction ended; None if it has no transactions."""
        ...

    def take_reply(self, correlation_id: str, reply: MessageExt) -> bool:
        """Take a reply. Returns whether a request was waiting for it."""
        ...


class ConsumerMember(Member, Protocol):
    """A consumer: shares queues with the other members of its group."""

    def members_changed(self) -> None:
        """A broker reports that a member joined or left."""
        ...

    def queue_freed(self) -> None:
        """A broker reports that a queue held by another member is now free."""
        ...

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group. Raises ValueError if the group cannot be moved."""
        ...

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Progress in the queues of a topic, for operators."""
        ...

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """What it is doing, for operators."""
        ...

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Consume a message that an operator chose. Raises ValueError if there is no handler."""
        ...


@dataclass(frozen=True, slots=True)
class Members:
    """The members of one client, by group."""

    producers: dict[str, ProducerMember] = field(default_factory=dict)
    consumers: dict[str, ConsumerMember] = field(default_factory=dict)

    def topics(self) -> set[str]:
        """Topics whose routes a member needs."""
        members: list[Member] = [*self.producers.values(), *self.consumers.values()]
        return set[str]().union(*(member.topics() for member in members))

    def heartbeat(self, client_id: str) -> HeartbeatData:
        """The heartbeat for all members."""
        datas = (member.consumer_data() for member in self.consumers.values())
        return HeartbeatData(
            client_id=client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in self.producers),
            consumer_data_set=tuple(data for data in datas if data is not None),
        )


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class StartedConsumer:
    """The fields by which consumers of one process are compared. Each consumer keeps its own."""

    group: str
    subscriptions: Subscriptions
    is_broadcasting: bool
    """Whether each member gets everything."""
    is_orderly: bool | None = None
    """Whether its handler gets the messages of a queue in order; None for one that polls."""


@dataclass(frozen=True, slots=True)
class ConsumerIdentity:
    """How brokers identify a consumer, and which brokers."""

    client_id: str
    name_servers: frozenset[str]
    pid: int
    """A forked child has copies of its parent's entries."""


@dataclass(frozen=True, slots=True)
class _Started:
    consumer: "weakref.ref[StartedConsumer]"
    identity: ConsumerIdentity
    loop: asyncio.AbstractEventLoop


class ProcessConsumers:
    """Started consumers; one that was garbage collected without being stopped does not count.

    Two members of a clustering group with one client id take the same queues, and members that
    subscribe differently lose messages. Members that share progress with others that do not, or
    order with others that do not keep it, break both. Brokers can only report these mistakes, if at
    all. If both members are in one process, the start of the second is refused.
    """

    def __init__(self) -> None:
        self._started: list[_Started] = []

    def enter(self, consumer: StartedConsumer, identity: ConsumerIdentity) -> None:
        """Register a consumer. Raises ValueError if its client id is taken, or its model, order or
        subscription differs."""
        for other, its in self._of_group(consumer.group, identity):
            everybody_gets_all = consumer.is_broadcasting and other.is_broadcasting
            if its.client_id == identity.client_id and not everybody_gets_all:
                raise ValueError(
                    f"group {consumer.group} has a member with client id {identity.client_id} in"
                    " this process already: both would take the same queues; give each Client an"
                    " instance_name of its own, or none"
                )
            _check_kind(consumer, other)
            difference = differences(consumer.subscriptions.all(), other.subscriptions.all())
            if difference:
                raise ValueError(
                    f"group {consumer.group} has a member in this process that subscribes"
                    f" differently: {difference}; members of one group need the same"
                    " subscriptions, else messages are lost: use another group"
                )
        loop = asyncio.get_running_loop()
        self._started.append(_Started(weakref.ref(consumer), identity, loop))

    def leave(self, consumer: StartedConsumer) -> None:
        """Remove a consumer that stopped."""
        self._started = [one for one in self._started if one.consumer() is not consumer]

    def _of_group(
        self, group: str, identity: ConsumerIdentity
    ) -> Iterator[tuple[StartedConsumer, ConsumerIdentity]]:
        for started in self._started:
            other = started.consumer()
            if other is None or other.group != group or started.loop.is_closed():
                continue
            if (
                started.identity.pid == identity.pid
                and started.identity.name_servers & identity.name_servers
            ):
                yield other, started.identity


def _check_kind(one: StartedConsumer, other: StartedConsumer) -> None:
    """Raises ValueError if two members of a group differ in model or order."""
    has = f"group {one.group} has a member in this process"
    if one.is_broadcasting != other.is_broadcasting:
        theirs, ours = (_MODELS[it.is_broadcasting] for it in (other, one))
        raise ValueError(
            f"{has} with the model {theirs}, this one is {ours}: brokers take the model of the last"
            " heartbeat for the group's, and progress is lost; give all members the same model, or"
            " use another group"
        )
    if None not in (one.is_orderly, other.is_orderly) and one.is_orderly != other.is_orderly:
        theirs, ours = ("with" if it.is_orderly else "without" for it in (other, one))
        raise ValueError(
            f"{has} {theirs} orderly=True, this one is {ours} it: queues that change hands lose"
            " their order; give all members the same, or use another group"
        )


_MODELS = {False: "CLUSTERING", True: "BROADCASTING"}

CONSUMERS_OF_PROCESS = ProcessConsumers()
"""The default of every client. Simulations have one object for each host."""
