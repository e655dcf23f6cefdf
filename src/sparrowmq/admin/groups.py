"""Consumer groups as brokers and live members report them: settings, members, subscriptions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, while_it_answers
from sparrowmq.admin.errors import BrokerRefusal, NoBrokerAnswers, NotFound, unknown_name
from sparrowmq.admin.members import Connected, GroupMember, Subscription, connected, with_details
from sparrowmq.admin.values import BrokerFailure, Listing, distinct
from sparrowmq.protocol.broker_stats import GroupForbidden
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.headers.admin import UpdateGroupForbidden
from sparrowmq.protocol.headers.connections import GetTopicsOfConsumer
from sparrowmq.protocol.headers.groups import GetAllGroupConfig, GetGroupConfig
from sparrowmq.protocol.headers.statistics import GetConsumeStats
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, is_system_group
from sparrowmq.protocol.offsets_body import ConsumeStats
from sparrowmq.protocol.route import TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of a group on one broker."""

    broker: str
    may_consume: bool
    may_broadcast: bool
    orderly: bool
    retries: int
    """How often a message is delivered again before it becomes a dead letter."""
    retry_queues: int
    attributes: Mapping[str, str]
    paused_topics: frozenset[str] | None = frozenset()
    """Topics of the group that it may not read there; None if the broker does not say that."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Brokers that do not let a group read: an operator paused it there."""

    topic: str | None
    """None for all topics."""
    brokers: tuple[str, ...]
    is_everywhere: bool
    """Whether it is on all brokers that have the group."""

    def __str__(self) -> str:
        where = "" if self.topic is None else f" in {self.topic}"
        return f"paused{where}" + ("" if self.is_everywhere else f" on {', '.join(self.brokers)}")


def pauses_of(settings: Sequence[GroupSettings]) -> tuple[Pause, ...]:
    """Where a group is paused: as a whole first, then by topic."""
    topics = sorted({topic for each in settings for topic in each.paused_topics or ()})
    by_topic: dict[str | None, tuple[str, ...]] = {
        None: tuple(each.broker for each in settings if not each.may_consume),
        **{
            topic: tuple(e.broker for e in settings if topic in (e.paused_topics or ()))
            for topic in topics
        },
    }
    return tuple(
        Pause(topic, brokers, len(brokers) == len(settings))
        for topic, brokers in by_topic.items()
        if brokers
    )


def is_paused(settings: Sequence[GroupSettings], queue: MessageQueue) -> bool:
    """Whether the broker of a queue refuses the group's pulls of it."""
    return any(
        queue.broker_name in each.brokers and each.topic in (None, queue.topic)
        for each in pauses_of(settings)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A consumer group on the brokers that answered; the others are in `errors`."""

    name: str
    settings: tuple[GroupSettings, ...]
    members: tuple[GroupMember, ...]
    model: MessageModel | None
    """None while no member is online."""
    subscriptions: frozenset[Subscription]
    """The subscriptions by which brokers deliver, while members are online."""
    topics: tuple[str, ...]
    """Topics in which the group has progress."""
    doubled_client_ids: frozenset[str]
    """Client ids that several processes use; such members take the same queues."""
    errors: tuple[BrokerFailure, ...] = ()

    @property
    def is_online(self) -> bool:
        """Whether the group has a live member."""
        return bool(self.members)

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """Where an operator paused it."""
        return pauses_of(self.settings)

    @property
    def state(self) -> str:
        """`consuming`, `offline`, `paused`, or what of it is paused: `paused in orders`, `paused
        on broker-a`, `offline, paused in orders`."""
        pauses = self.pauses
        if any(each.topic is None and each.is_everywhere for each in pauses):
            return "paused"
        words = [*([] if self.is_online else ["offline"]), *map(str, pauses)]
        return ", ".join(words) or "consuming"

    @property
    def subscriptions_differ(self) -> bool:
        """Whether live members subscribe differently, so that messages get lost among them."""
        wanted = {member.subscriptions for member in self.members}
        return len(wanted - {None}) > 1


# ---- looking


GroupTables = Mapping[str, Mapping[str, SubscriptionGroupConfig]]
"""The settings of all groups, by broker and group."""


async def group_tables(cluster: ClusterCalls) -> Answers[dict[str, SubscriptionGroupConfig]]:
    """All groups of all brokers. Raises NoBrokerAnswers."""
    return await cluster.ask_each(
        await cluster.readable(), lambda _, address: all_configs(cluster, address)
    )


async def group_names(cluster: ClusterCalls) -> Listing[str]:
    """Names of all groups that any broker has."""

    answers = await group_tables(cluster)
    names = set().union(*answers.by_broker.values())
    return Listing(tuple(sorted(names)), answers.errors)


async def describe_group(
    cluster: ClusterCalls, name: str, tables: GroupTables | None = None
) -> GroupInfo:
    """What brokers and live members report about a group. Raises NotFound."""
    online = await connected(cluster, check_group(name))
    known = await find_group(cluster, name, online, tables)
    unequal = online.unequal
    members = [
        replace(each, subscriptions=unequal.get(each.client_id))
        if each.subscriptions is None
        else each
        for each in await with_details(cluster, name, online)
    ]
    first = next((each for each in online.by_broker.values() if each.connection_set), None)
    topics = {topic for _, names in known.by_broker.values() for topic in names}
    configs = {broker: found for broker, (found, _) in known.by_broker.items() if found is not None}
    paused = await _paused_topics(
        cluster,
        name,
        {broker: online.addresses[broker] for broker in configs},
        topics | {each.topic for each in online.subscriptions},
    )
    return GroupInfo(
        name=name,
        settings=tuple(
            _settings(broker, config, paused.by_broker.get(broker))
            for broker, config in configs.items()
        ),
        members=tuple(members),
        model=None if first is None else first.message_model,
        subscriptions=online.subscriptions,
        topics=tuple(sorted(topics)),
        doubled_client_ids=online.doubled,
        errors=distinct((*known.errors, *paused.errors)),
    )


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """What brokers have stored about a group: settings, and topics in which it has progress."""

    by_broker: dict[str, tuple[SubscriptionGroupConfig | None, frozenset[str]]]
    errors: tuple[BrokerFailure, ...]


async def find_group(
    cluster: ClusterCalls, name: str, online: Connected, tables: GroupTables | None = None
) -> KnownGroup:
    """What brokers have stored about a group. Raises NotFound if none knows it. Pass `tables`, the
    settings of all groups, when looking up many groups."""

    async def ask(
        broker: str, address: str
    ) -> tuple[SubscriptionGroupConfig | None, frozenset[str]]:
        topics = await topics_of_group(cluster, address, name)
        there = online.by_broker.get(broker)
        if tables is not None and broker in tables:
            return tables[broker].get(name), topics
        is_known = bool(topics) or (there is not None and bool(there.connection_set))
        return await group_config(cluster, address, name, is_known=is_known), topics

    answers = await cluster.ask_each(online.addresses, ask)
    if not any(config or topics for config, topics in answers.by_broker.values()):
        silent = f"; not asked: {', '.join(map(str, answers.errors))}" if answers.errors else ""
        raise await no_group(cluster, name, silent)
    return KnownGroup(answers.by_broker, answers.errors)


async def no_group(cluster: ClusterCalls, name: str, more: str = "") -> NotFound:
    """The error for a group that no broker knows, with the name that may be meant."""
    try:
        known = await group_names(cluster)
    except NoBrokerAnswers:
        known = Listing((), ())
    users = [each for each in known if not is_system_group(each)]
    return unknown_name("group", name, users, more)


async def topics_of_group(cluster: ClusterCalls, address: str, group: str) -> frozenset[str]:
    """Topics in which a group has progress on one broker."""
    try:
        response = await cluster.call(address, GetTopicsOfConsumer(group=group))
    except BrokerRefusal as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        # A broker before 5.0. Of a live group its statistics leave out what no member subscribes to
        stats = await cluster.call(address, GetConsumeStats(consumer_group=group))
        return frozenset(queue.topic for queue in ConsumeStats.from_json(stats.body).offset_table)
    return TopicList.from_json(response.body).topic_list


async def group_config(
    cluster: ClusterCalls, address: str, group: str, *, is_known: bool
) -> SubscriptionGroupConfig | None:
    """A group's settings on a broker; None if the broker does not have it.

    Apache's broker creates a group when asked for it by name. Unless the group is known to exist,
    it is looked up in the table of all groups.
    """
    if not is_known:
        return (await all_configs(cluster, address)).get(group)
    try:
        response = await cluster.call(address, GetGroupConfig(group=group))
    except BrokerRefusal as error:
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return (await all_configs(cluster, address)).get(group)  # a broker before 5.0
    return SubscriptionGroupConfig.from_json(response.body)


async def all_configs(cluster: ClusterCalls, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all groups on a broker."""
    response = await cluster.call(address, GetAllGroupConfig())
    return SubscriptionGroupTable.from_json(response.body).subscription_group_table


async def _paused_topics(
    cluster: ClusterCalls, group: str, addresses: Mapping[str, str], topics: Collection[str]
) -> Answers[frozenset[str] | None]:
    """Which of these topics the group may not read, by broker; None where a broker does not say."""

    async def ask(_: str, address: str) -> frozenset[str] | None:
        asks = {topic: partial(_may_read, cluster, address, group, topic) for topic in topics}
        try:
            found = await while_it_answers(asks)
        except BrokerRefusal as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None  # a broker before 5.0
        return frozenset(topic for topic, may_read in found.items() if not may_read)

    try:
        return await cluster.ask_each(addresses, ask)
    except NoBrokerAnswers as error:
        return Answers({}, error.errors)


async def _may_read(cluster: ClusterCalls, address: str, group: str, topic: str) -> bool:
    response = await cluster.call(address, UpdateGroupForbidden(group=group, topic=topic))
    return GroupForbidden.from_json(response.body).readable


def _settings(
    broker: str, config: SubscriptionGroupConfig, paused_topics: frozenset[str] | None
) -> GroupSettings:
    return GroupSettings(
        broker=broker,
        may_consume=config.consume_enable,
        may_broadcast=config.consume_broadcast_enable,
        orderly=config.consume_message_orderly,
        retries=config.retry_max_times,
        retry_queues=config.retry_queue_nums,
        attributes=dict(config.attributes),
        paused_topics=paused_topics,
    )


# ---- subscriptions
#
# RocketMQ expects all members of a group to subscribe to the same. If they do not, the broker keeps
# the latest heartbeat's subscription, and a member drops messages that it did not subscribe to.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubscription:
    """One subscription, and the members that have it."""

    subscription: Subscription
    members: tuple[str, ...]
    """Client ids; empty where only the broker knows of it."""
    difference: str
    """What differs between members, in words; empty if all have this subscription."""


def subscriptions_of(group: GroupInfo) -> list[GroupSubscription]:
    """Every subscription of a group, by topic."""
    asked = [each for each in group.members if each.subscriptions is not None]
    wanted = {one for each in asked for one in each.subscriptions or ()} | group.subscriptions
    return [
        GroupSubscription(
            subscription=one,
            members=tuple(each.client_id for each in asked if one in (each.subscriptions or ())),
            difference=_difference(one, asked),
        )
        for one in sorted(wanted)
    ]


def _difference(one: Subscription, asked: Sequence[GroupMember]) -> str:
    lacking = [each for each in asked if one not in (each.subscriptions or ())]
    if not lacking:
        return ""
    parts = []
    for each in lacking:
        other = next(
            (have.expression for have in each.subscriptions or () if have.topic == one.topic), None
        )
        text = "not subscribed" if other is None else f"subscribes to {other!r}"
        parts.append(f"{each.client_id} {text}")
    return "; ".join(parts)
