"""Consumer groups: settings, members and subscriptions; creating, changing and deleting them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, Request
from sparrowmq.admin.errors import AlreadyExists, BrokerRefusal, InUse, NotFound
from sparrowmq.admin.members import Connected, GroupMember, Subscription, connected, with_details
from sparrowmq.admin.values import BrokerFailure, Listing, Setting, SettingChange
from sparrowmq.admin.wanted_settings import Attributes, WantedSettings
from sparrowmq.client.argument_checks import check_flags, check_whole
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.headers.connections import GetTopicsOfConsumer
from sparrowmq.protocol.headers.groups import (
    CreateGroup,
    DeleteGroup,
    GetAllGroupConfig,
    GetGroupConfig,
)
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.names import check_group
from sparrowmq.protocol.route import TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How one broker has a group."""

    broker: str
    may_consume: bool
    may_broadcast: bool
    orderly: bool
    retries: int
    """How often a message is delivered again before it becomes a dead letter."""
    retry_queues: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A consumer group on the brokers that answered; the others are in `errors`."""

    name: str
    settings: tuple[GroupSettings, ...]
    members: tuple[GroupMember, ...]
    model: MessageModel | None
    """None while no member is online."""
    subscriptions: frozenset[Subscription]
    """What brokers deliver by, while members are online."""
    topics: tuple[str, ...]
    """Topics in which it has progress."""
    doubled_client_ids: frozenset[str]
    """Client ids that several processes use; such members take the same queues."""
    errors: tuple[BrokerFailure, ...] = ()

    @property
    def is_online(self) -> bool:
        """Whether it has a live member."""
        return bool(self.members)

    @property
    def subscriptions_differ(self) -> bool:
        """Whether live members want different things, so that messages get lost among them."""
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
    return GroupInfo(
        name=name,
        settings=tuple(
            _settings(broker, config)
            for broker, (config, _) in known.by_broker.items()
            if config is not None
        ),
        members=tuple(members),
        model=None if first is None else first.message_model,
        subscriptions=online.subscriptions,
        topics=tuple(sorted({name for _, names in known.by_broker.values() for name in names})),
        doubled_client_ids=online.doubled,
        errors=known.errors,
    )


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """What brokers have stored of a group: its settings, and topics in which it has progress."""

    by_broker: dict[str, tuple[SubscriptionGroupConfig | None, frozenset[str]]]
    errors: tuple[BrokerFailure, ...]


async def find_group(
    cluster: ClusterCalls, name: str, online: Connected, tables: GroupTables | None = None
) -> KnownGroup:
    """What brokers have stored of a group. Raises NotFound if none knows it. `tables` are what
    brokers have of all groups, where many groups are looked for."""

    async def ask(
        broker: str, address: str
    ) -> tuple[SubscriptionGroupConfig | None, frozenset[str]]:
        topics = await topics_of_group(cluster, address, name)
        there = online.by_broker.get(broker)
        if tables is not None and broker in tables:
            return tables[broker].get(name), topics
        is_known = bool(topics) or (there is not None and bool(there.connection_set))
        return await _config(cluster, address, name, is_known=is_known), topics

    answers = await cluster.ask_each(online.addresses, ask)
    if not any(config or topics for config, topics in answers.by_broker.values()):
        silent = f"; not asked: {', '.join(map(str, answers.errors))}" if answers.errors else ""
        hint = (
            "those that do: sparrowmq group list; a group exists once a member was online" + silent
        )
        raise NotFound("group", name, hint)
    return KnownGroup(answers.by_broker, answers.errors)


async def topics_of_group(cluster: ClusterCalls, address: str, group: str) -> frozenset[str]:
    """Topics in which a group has progress on one broker."""
    try:
        response = await cluster.call(address, GetTopicsOfConsumer(group=group))
    except BrokerRefusal as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return frozenset()  # a broker before 5.0
    return TopicList.from_json(response.body).topic_list


async def _config(
    cluster: ClusterCalls, address: str, group: str, *, is_known: bool
) -> SubscriptionGroupConfig | None:
    """How a broker has a group; None if it does not.

    Apache's broker creates a group that it is asked for by name. Unless the group is known to
    exist, it is looked up in the table of all groups.
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
    """How a broker has all its groups."""
    response = await cluster.call(address, GetAllGroupConfig())
    return SubscriptionGroupTable.from_json(response.body).subscription_group_table


def _settings(broker: str, config: SubscriptionGroupConfig) -> GroupSettings:
    return GroupSettings(
        broker=broker,
        may_consume=config.consume_enable,
        may_broadcast=config.consume_broadcast_enable,
        orderly=config.consume_message_orderly,
        retries=config.retry_max_times,
        retry_queues=config.retry_queue_nums,
        attributes=dict(config.attributes),
    )


# ---- changing


_FIELDS = {
    "may_consume": "consume_enable",
    "may_broadcast": "consume_broadcast_enable",
    "orderly": "consume_message_orderly",
    "retries": "retry_max_times",
    "retry_queues": "retry_queue_nums",
}
_FLAGS = ("may_consume", "may_broadcast", "orderly")


def wanted_group(attributes: Attributes | None, **settings: Setting) -> WantedSettings:
    """Settings to give to a group; None leaves one as it is. Raises ValueError."""
    given = {name: value for name, value in settings.items() if value is not None}
    check_flags(**{name: given[name] for name in _FLAGS if name in given})
    if "retries" in given:
        check_whole("retries", given["retries"], -1)
    if "retry_queues" in given:
        check_whole("retry_queues", given["retry_queues"], 1)
    return WantedSettings(_FIELDS, given, attributes)


def _request(wanted: WantedSettings, config: SubscriptionGroupConfig) -> Request:
    return CreateGroup(), wanted.applied(config).to_json()


def create_request(config: SubscriptionGroupConfig) -> Request:
    """The request that gives a broker a group it does not have, with all its settings."""
    # Attributes are sent as changes, each with a sign.
    signed = {f"+{name}": value for name, value in config.attributes.items()}
    return CreateGroup(), msgspec.structs.replace(config, attributes=signed).to_json()


def check_new(group: str, wanted: WantedSettings) -> None:
    """Raises ValueError for a name or attributes that no group can have."""
    check_group(group)
    wanted.check_new("group")


async def create_group(
    cluster: ClusterCalls,
    group: str,
    wanted: WantedSettings,
    *,
    targets: Mapping[str, str],
    replace: bool,
) -> list[str]:
    """Create a group on the targets, or replace its settings there. Raises AlreadyExists where it
    differs and `replace` is False."""

    async def ask(_: str, address: str) -> SubscriptionGroupConfig | None:
        return await _config(cluster, address, group, is_known=False)

    if not replace:
        present = (await cluster.ask_each(targets, ask)).all()
        changes = [
            change
            for name, config in present.items()
            if config is not None
            for change in wanted.changes(config, name)
        ]
        if changes:
            raise AlreadyExists("group", group, map(str, changes))
    request = _request(wanted, SubscriptionGroupConfig(group_name=group))
    return await cluster.change_each(f"group {group} is set", targets, lambda _: request)


async def update_group(
    cluster: ClusterCalls,
    group: str,
    wanted: WantedSettings,
    *,
    brokers: Sequence[str],
    dry_run: bool,
) -> list[SettingChange]:
    """Change a group on the brokers that have it. Nothing is changed unless all of them answer."""
    check_group(group)
    targets = await cluster.masters(brokers=brokers)
    answers = await cluster.ask_each(
        targets, lambda _, address: _config(cluster, address, group, is_known=False)
    )
    configs = {name: config for name, config in answers.all().items() if config is not None}
    if not configs:
        raise NotFound("group", group, f"create it first; asked were: {', '.join(targets)}")
    changes = [each for name in configs for each in wanted.changes(configs[name], name)]
    if dry_run or not changes:
        return changes
    concerned = {name: targets[name] for name in sorted({change.broker for change in changes})}
    await cluster.change_each(
        f"group {group} is changed", concerned, lambda name: _request(wanted, configs[name])
    )
    return changes


async def delete_group(
    cluster: ClusterCalls, group: str, *, keep_offsets: bool, force: bool, missing_ok: bool
) -> list[str]:
    """Delete a group and its progress on all brokers. Nothing is deleted unless all of them answer.
    Raises NotFound unless `missing_ok`, and InUse unless `force`."""
    check_group(group)
    targets = await cluster.masters()
    online = await connected(cluster, group)
    if not missing_ok:
        await find_group(cluster, group, online)
    if not force:
        _check_offline(online, group, "stop them first, or their brokers create it again")
    online.check_all()
    header = DeleteGroup(group_name=group, clean_offset=not keep_offsets)
    return await cluster.change_each(f"group {group} is deleted", targets, lambda _: (header, b""))


async def check_offline(cluster: ClusterCalls, group: str, hint: str) -> None:
    """Raises InUse if a group has live members, AdminError if that cannot be known."""
    _check_offline(await connected(cluster, group), group, hint)


def _check_offline(online: Connected, group: str, hint: str) -> None:
    if online.members:
        raise InUse(group, [each.client_id for each in online.members], hint)
    online.check_all()
