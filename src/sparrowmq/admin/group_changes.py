"""Changing consumer groups: created, updated, paused, deleted.

A change goes to the brokers that can be reached, and those that cannot are named. It does not start
while a broker hangs: that broker would make the change when it continues, at an unknown time.
"""

from collections.abc import Mapping, Sequence

import msgspec

from sparrowmq.admin.cluster_calls import ClusterCalls, Request, partly_done, without
from sparrowmq.admin.errors import AlreadyExists, InUse
from sparrowmq.admin.groups import all_configs, find_group, no_group
from sparrowmq.admin.members import Connected, connected
from sparrowmq.admin.values import BrokerFailure, Setting, SettingChange
from sparrowmq.admin.wanted_settings import Attributes, WantedSettings
from sparrowmq.client.argument_checks import check_flags, check_whole
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.admin import UpdateGroupForbidden
from sparrowmq.protocol.headers.groups import CreateGroup, DeleteGroup
from sparrowmq.protocol.names import (
    check_group,
    check_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
)

_FIELDS = {
    "may_consume": "consume_enable",
    "may_broadcast": "consume_broadcast_enable",
    "orderly": "consume_message_orderly",
    "retries": "retry_max_times",
    "retry_queues": "retry_queue_nums",
}
_DEFAULTS: Mapping[str, Setting] = {
    "may_consume": True,
    "may_broadcast": True,
    "orderly": False,
    "retries": 16,
    "retry_queues": 1,
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


def check_own(group: str) -> str:
    """Returns the group. Raises ValueError for an illegal name, and for the groups of RocketMQ's
    own tools: pausing one of them stops `message tail` and mqadmin for all users."""
    check_group(group)
    if is_system_group(group):
        raise ValueError(f"group {group} belongs to RocketMQ's own tools; name one of yours")
    if is_retry_topic(group) or is_dlq_topic(group):
        raise ValueError(f"{group} is a topic that brokers make for a group; name the group")
    return group


def check_new(group: str, wanted: WantedSettings) -> None:
    """Raises ValueError for a name or attributes that no group can have."""
    check_own(group)
    wanted.check_new("group")


async def create_group(
    cluster: ClusterCalls,
    group: str,
    wanted: WantedSettings,
    *,
    brokers: Sequence[str],
    of: str | None,
    replace: bool,
    dry_run: bool,
) -> list[str]:
    """Create a group on the brokers named, those of a cluster, or all, or replace its settings
    there. Raises AlreadyExists where it differs in what is given and `replace` is False."""
    targets, away = await cluster.changeable(brokers=brokers, cluster=of)
    present: dict[str, SubscriptionGroupConfig] = {}
    if not replace:
        present, unreached = await _configs(cluster, group, targets)
        away += unreached
        changes = [each for name in present for each in wanted.changes(present[name], name)]
        if changes:
            raise AlreadyExists("group", group, map(str, changes))
    if dry_run:
        return list(without(targets, away))
    new = _request(wanted.with_defaults(_DEFAULTS), SubscriptionGroupConfig(group_name=group))
    return await cluster.change_each(
        f"group {group} is set",
        without(targets, away),
        lambda name: _request(wanted, present[name]) if name in present else new,
        away=away,
    )


async def _configs(
    cluster: ClusterCalls, group: str, targets: Mapping[str, str]
) -> tuple[dict[str, SubscriptionGroupConfig], Sequence[BrokerFailure]]:
    """A group's settings on the brokers that have it, and the brokers that cannot be reached.
    Apache's broker creates a group when asked for it by name, so this asks for the table of all."""

    async def ask(_: str, address: str) -> SubscriptionGroupConfig | None:
        return (await all_configs(cluster, address)).get(group)

    found, away = (await cluster.ask_each(targets, ask)).reached()
    return {name: config for name, config in found.items() if config is not None}, away


async def update_group(
    cluster: ClusterCalls,
    group: str,
    wanted: WantedSettings,
    *,
    brokers: Sequence[str],
    of: str | None = None,
    dry_run: bool,
) -> list[SettingChange]:
    """Change a group on the brokers that have it: on those that are named, those of a cluster, or
    all. Raises ValueError, NotFound."""
    check_own(group)
    changes, _ = await _update(cluster, group, wanted, brokers=brokers, of=of, dry_run=dry_run)
    return changes


async def _update(
    cluster: ClusterCalls,
    group: str,
    wanted: WantedSettings,
    *,
    brokers: Sequence[str] = (),
    of: str | None = None,
    dry_run: bool,
) -> tuple[list[SettingChange], list[str]]:
    """What differs, and the brokers that have the group."""
    check_group(group)
    targets, away = await cluster.changeable(brokers=brokers, cluster=of)
    configs, unreached = await _configs(cluster, group, targets)
    away += unreached
    if not configs:
        raise await no_group(cluster, group)
    changes = [each for name in configs for each in wanted.changes(configs[name], name)]
    what = f"group {group} is changed"
    if not (dry_run or changes) and away:
        raise partly_done(what, list(configs), away)
    if dry_run or not changes:
        return changes, list(configs)
    concerned = {name: targets[name] for name in sorted({change.broker for change in changes})}
    await cluster.change_each(
        what, concerned, lambda name: _request(wanted, configs[name]), away=away
    )
    return changes, list(configs)


async def set_paused(
    cluster: ClusterCalls, group: str, topic: str | None, *, paused: bool, dry_run: bool
) -> list[str]:
    """Make brokers refuse a group's pulls, or serve them again. Returns the names of those that do.

    Members still handle what they have already fetched. Members retry: Python's after a growing
    pause, Java's every 3 s. Raises NotFound, AdminError, PartlyDone. For one topic, brokers have to
    be 5.0 or newer.
    """
    (check_own if paused else check_group)(group)
    if topic is None:
        wanted = wanted_group(None, may_consume=not paused)
        _, having = await _update(cluster, group, wanted, dry_run=dry_run)
        return having
    online = await connected(cluster, group)
    await find_group(cluster, group, online)
    online.unreached()  # raises while a broker hangs, before any other is changed
    route = await cluster.route(check_topic(topic))
    names = sorted({each.broker_name for each in route.broker_datas})
    targets, away = await cluster.changeable(brokers=names)
    if dry_run:
        return list(targets)
    header = UpdateGroupForbidden(group=group, topic=topic, readable=not paused)
    what = f"group {group} is {'paused' if paused else 'resumed'} in topic {topic}"
    return await cluster.change_each(what, targets, lambda _: (header, b""), away=away)


async def delete_group(
    cluster: ClusterCalls,
    group: str,
    *,
    keep_offsets: bool,
    force: bool,
    missing_ok: bool,
    dry_run: bool,
) -> list[str]:
    """Delete a group and its progress on all brokers. Raises NotFound unless `missing_ok`, and
    InUse unless `force`."""
    check_group(group)
    targets, away = await cluster.changeable()
    online = await connected(cluster, group)
    if not missing_ok:
        await find_group(cluster, group, online)
    if not force:
        _check_no_members(online, group, "stop them first, or their brokers create it again")
    away += online.unreached()
    if dry_run:
        return list(without(targets, away))
    header = DeleteGroup(group_name=group, clean_offset=not keep_offsets)
    return await cluster.change_each(
        f"group {group} is deleted", without(targets, away), lambda _: (header, b""), away=away
    )


async def check_offline(cluster: ClusterCalls, group: str, hint: str) -> None:
    """Raises InUse if a group has live members, AdminError if that cannot be known."""
    online = await connected(cluster, group)
    _check_no_members(online, group, hint)
    online.check_all()


def _check_no_members(online: Connected, group: str, hint: str) -> None:
    if online.members:
        raise InUse(group, [each.client_id for each in online.members], hint)
