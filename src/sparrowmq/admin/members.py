"""Live clients: members of consumer groups, what they report about themselves, and producers."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from msgspec import field

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, answered, at_once
from sparrowmq.admin.errors import AdminError, BrokerRefusal, NotFound, shown
from sparrowmq.admin.values import BrokerFailure, Listing, time_of
from sparrowmq.protocol.codes import ResponseCode, version_text
from sparrowmq.protocol.connections import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProducerTable,
)
from sparrowmq.protocol.headers.connections import GetAllProducers, GetConsumerConnections
from sparrowmq.protocol.headers.consumer_calls import GetConsumerRunningInfo
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, is_retry_topic
from sparrowmq.protocol.subscription import TAG, SubscriptionData

_STARTED = "PROP_CONSUMER_START_TIMESTAMP"
_ORDERLY = "PROP_CONSUMEORDERLY"


@dataclass(frozen=True, slots=True, order=True)
class Subscription:
    """What a group or member subscribes to in a topic."""

    topic: str
    expression: str = "*"
    kind: str = TAG
    """TAG or SQL92."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A live member of a consumer group.

    The fields from `since` on come from the member itself; they are None if it was not asked or did
    not answer.
    """

    client_id: str
    address: str
    language: str
    version: str
    """The version of RocketMQ's protocol, such as V5_3_3."""
    brokers: tuple[str, ...]
    """Brokers that it is connected to."""
    since: datetime | None = None
    subscriptions: frozenset[Subscription] | None = None
    queues: tuple[MessageQueue, ...] | None = None
    """The queues that it holds."""
    done_per_s: float | None = None
    failed_per_s: float | None = None
    handler_ms: float | None = None
    """How long a call of its handler took on average in the last minute; None if none ended."""
    notes: Mapping[str, str] | None = None
    """What it reports in words, such as which queues it is not pulling now."""
    in_flight: int | None = None
    """Messages that it has fetched and its handler has not finished."""
    unfinished_s: float | None = None
    """For how long its handler has finished nothing in a queue that has such messages; by the
    clock here."""
    may_be_idle: bool = False
    """Whether a part of that time it may have had nothing to do: clients of Java and Go do not
    report when a call of their handler began."""
    stacks: str | None = None
    errors: tuple[BrokerFailure, ...] = ()
    """Brokers that did not say whether it is connected to them; of `member` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProducer:
    """A live producer, as one broker sees it."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    last_seen: datetime | None
    broker: str


class CheckedConnections(ConsumerConnection, frozen=True, kw_only=True):
    """ConsumerConnection with the fields that SparrowMQ's brokers add."""

    unequal_subscriptions: dict[str, list[str]] = field(default_factory=dict)
    doubled_client_ids: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """A group's live members on all brokers."""

    by_broker: Mapping[str, CheckedConnections]
    addresses: Mapping[str, str]
    errors: tuple[BrokerFailure, ...]

    def check_all(self) -> None:
        """Raises AdminError, before a change, if a broker may have members that are not known."""
        Answers(dict(self.by_broker), self.errors).all()

    def unreached(self) -> tuple[BrokerFailure, ...]:
        """Brokers that cannot be reached. Raises AdminError, before a change, if one that can did
        not answer."""
        return Answers(dict(self.by_broker), self.errors).reached()[1]

    @property
    def subscriptions(self) -> frozenset[Subscription]:
        """The subscriptions by which brokers deliver, and of topics that these lack, those of
        single members: if members differ, brokers keep only what the latest heartbeat names."""
        return _subscribed(self.by_broker.values())

    @property
    def awaited_topics(self) -> frozenset[str]:
        """Topics whose messages all members together have to read. Members that broadcast keep
        their progress themselves."""
        found = [
            each
            for each in self.by_broker.values()
            if each.message_model is not MessageModel.BROADCASTING
        ]
        return frozenset(one.topic for one in _subscribed(found))

    @property
    def unequal(self) -> dict[str, frozenset[Subscription]]:
        """What each member subscribes to, from brokers that notice when members differ."""
        return {
            client_id: frozenset(_parsed(text) for text in wanted)
            for each in self.by_broker.values()
            for client_id, wanted in each.unequal_subscriptions.items()
        }

    @property
    def doubled(self) -> frozenset[str]:
        """Client ids that several processes use."""
        return frozenset(
            name for each in self.by_broker.values() for name in each.doubled_client_ids or ()
        )

    @property
    def without_faults(self) -> list[str]:
        """Brokers that have members of the group and do not notice conflicts between them:
        Apache's."""
        return sorted(
            name
            for name, each in self.by_broker.items()
            if each.connection_set and each.doubled_client_ids is None
        )

    @property
    def may_differ(self) -> bool:
        """Whether members may subscribe differently without a broker noticing."""
        counts = {name: len(each.connection_set) for name, each in self.by_broker.items()}
        return any(counts[name] > 1 for name in self.without_faults)

    @property
    def members(self) -> list[GroupMember]:
        """Each client once, by id."""
        found: dict[str, GroupMember] = {}
        for broker, connections in self.by_broker.items():
            for one in connections.connection_set:
                known = found.get(one.client_id)
                found[one.client_id] = (
                    _member(one, broker)
                    if known is None
                    else replace(known, brokers=(*known.brokers, broker))
                )
        return [found[client_id] for client_id in sorted(found)]


def _member(connection: ClientConnection, broker: str) -> GroupMember:
    return GroupMember(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=connection.language,
        version=version_text(connection.version),
        brokers=(broker,),
    )


def _subscribed(found: Collection[CheckedConnections]) -> frozenset[Subscription]:
    """What members subscribe to, each topic as brokers deliver it if they do."""
    tables = (each.subscription_table.values() for each in found)
    delivered = _subscriptions(one for table in tables for one in table)
    topics = {one.topic for one in delivered}
    of_members = {
        _parsed(text)
        for each in found
        for wanted in each.unequal_subscriptions.values()
        for text in wanted
    }
    return delivered | {one for one in of_members if one.topic not in topics}


def subscribers(live: CheckedConnections, topic: str) -> tuple[ClientConnection, ...]:
    """The members that subscribe to a topic. A broker that notices no differences says the same of
    all of them."""
    told = {
        client_id: {_parsed(text).topic for text in wanted}
        for client_id, wanted in live.unequal_subscriptions.items()
    }
    of_all = live.subscription_table.keys()
    return tuple(one for one in live.connection_set if topic in told.get(one.client_id, of_all))


def _subscriptions(datas: Iterable[SubscriptionData]) -> frozenset[Subscription]:
    return frozenset(
        Subscription(data.topic, data.sub_string, data.expression_type or TAG)
        for data in datas
        if not is_retry_topic(data.topic)  # every member has its group's
    )


def _parsed(text: str) -> Subscription:
    topic, kind, expression = text.split(" ", 2)
    return Subscription(topic, expression, kind)


# ---- asking


async def connected(
    cluster: ClusterCalls, group: str, addresses: Mapping[str, str] | None = None
) -> Connected:
    """Which members are connected, according to the brokers (these, if given); members are not
    asked. Raises NoBrokerAnswers."""
    addresses = addresses or await cluster.readable()

    async def ask(_: str, address: str) -> CheckedConnections:
        try:
            header = GetConsumerConnections(consumer_group=group)
            return CheckedConnections.from_json((await cluster.call(address, header)).body)
        except BrokerRefusal as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return CheckedConnections()

    answers = await cluster.ask_each(addresses, ask)
    return Connected(answers.by_broker, addresses, answers.errors)


async def with_details(cluster: ClusterCalls, group: str, online: Connected) -> list[GroupMember]:
    """The members, each with what it reports about itself."""
    asks = [partial(_details, cluster, group, member, online) for member in online.members]
    results = await at_once(asks)
    return [
        member if isinstance(result, AdminError) else result
        for member, result in zip(online.members, results, strict=True)
    ]


async def _details(
    cluster: ClusterCalls,
    group: str,
    member: GroupMember,
    online: Connected,
    *,
    stacks: bool = False,
) -> GroupMember:
    info = await running_info(cluster, group, member, online, stacks=stacks)
    started = info.properties.get(_STARTED, "")
    busy = [each for each in info.mq_table.values() if each.cached_msg_count and not each.dropped]
    timed = busy if tells_finished(member, info) else []
    longest = min(timed, key=lambda each: each.busy_since_ms, default=None)
    return replace(
        member,
        since=time_of(int(started)) if started.isdecimal() else None,
        subscriptions=_subscriptions(info.subscription_set),
        queues=tuple(sorted(queue for queue, held in info.mq_table.items() if not held.dropped)),
        done_per_s=sum(status.consume_ok_tps for status in info.status_table.values()),
        failed_per_s=sum(status.consume_failed_tps for status in info.status_table.values()),
        handler_ms=_handler_ms(info.status_table.values()),
        notes=dict(info.user_consumer_info),
        in_flight=sum(each.cached_msg_count for each in busy),
        unfinished_s=None
        if longest is None
        else max(0, cluster.client.clock() - longest.busy_since_ms) / 1000,
        may_be_idle=longest is not None and not longest.running_since,
        stacks=info.jstack,
    )


def _handler_ms(topics: Iterable[ConsumeStatus]) -> float | None:
    """The mean over topics, each as often as its messages were handled."""
    rates = [(each.consume_ok_tps + each.consume_failed_tps, each.consume_rt) for each in topics]
    handled = sum(rate for rate, _ in rates)
    return sum(rate * time for rate, time in rates) / handled if handled else None


def tells_finished(member: GroupMember, info: ConsumerRunningInfo) -> bool:
    """Whether a member reports when its handler last finished something. Go's ordered ones (2.1.2)
    report when they got the queue, and never anything else."""
    return member.language != "GO" or info.properties.get(_ORDERLY) != "true"


async def running_info(
    cluster: ClusterCalls,
    group: str,
    member: GroupMember,
    online: Connected,
    *,
    stacks: bool = False,
) -> ConsumerRunningInfo:
    """What a member answers when a broker asks it on our behalf. Raises AdminError,
    ProtocolError."""
    header = GetConsumerRunningInfo(
        consumer_group=group, client_id=member.client_id, jstack_enable=stacks
    )
    response = await cluster.call(online.addresses[member.brokers[0]], header)
    return ConsumerRunningInfo.from_json(response.body)


async def members(cluster: ClusterCalls, group: str) -> Listing[GroupMember]:
    """A group's live members and what they report about themselves; none for an offline group."""
    online = await connected(cluster, check_group(group))
    return Listing(tuple(await with_details(cluster, group, online)), online.errors)


async def member(cluster: ClusterCalls, group: str, client_id: str, *, stacks: bool) -> GroupMember:
    """One member. Raises NotFound, and AdminError if it does not answer."""
    online = await connected(cluster, check_group(group))
    for each in online.members:
        if each.client_id == client_id:
            ask = partial(_details, cluster, group, each, online, stacks=stacks)
            return replace(await answered(ask), errors=online.errors)
    known = shown(each.client_id for each in online.members)
    raise NotFound("member", client_id, f"live members of group {group} are: {known}")


async def producers(cluster: ClusterCalls) -> Listing[LiveProducer]:
    """The live producers of all brokers."""

    async def ask(broker: str, address: str) -> list[LiveProducer]:
        response = await cluster.call(address, GetAllProducers())
        return [
            LiveProducer(
                group=group,
                client_id=one.client_id,
                address=one.remote_ip.rpartition("/")[2],
                language=one.language,
                version=version_text(one.version),
                last_seen=time_of(one.last_update_timestamp),
                broker=broker,
            )
            for group, found in ProducerTable.from_json(response.body).data.items()
            for one in found
        ]

    answers = await cluster.ask_each(await cluster.readable(), ask)
    found = [one for each in answers.by_broker.values() for one in each]
    found.sort(key=lambda one: (one.group, one.client_id, one.broker))
    return Listing(tuple(found), answers.errors)
