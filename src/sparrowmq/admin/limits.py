"""Quotas, largest backlogs and de-duplication: what there is, how much of it is used, and changing
limits.

Limits apply to each broker separately; quotas are shown as the sum over brokers. They are
attributes of topics and consumer groups. Quotas of producer groups and clients, which are in no
table, are attributes of the topic that has the broker's name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from sparrowmq.admin import group_changes, groups, topics
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import BrokerRefusal, unknown_name
from sparrowmq.admin.values import BrokerFailure, Listing, SettingChange, time_of
from sparrowmq.admin.wanted_settings import Attributes
from sparrowmq.client.argument_checks import check_names, check_whole
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.limit_report import LimitReport, ListLimits, ReportedLimit, ReportedWindow
from sparrowmq.protocol.limits import (
    BACKLOG,
    MOST_BACKLOG,
    MOST_BACKLOG_S,
    MOST_PER_SECOND,
    UNITS,
    Backlog,
    BacklogAction,
    Scope,
    quota_attributes,
    read_backlog,
)
from sparrowmq.protocol.names import (
    check_group,
    check_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
)

KINDS = (*UNITS, "backlog")
"""What can be limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One quota, or the largest backlog of one topic, over the brokers that have it."""

    scope: str
    """topic, producer-group, consumer-group or client."""
    name: str
    """`*` for the quota that every client has."""
    messages: int | None = None
    """Per second, the sum over brokers."""
    bytes: int | None = None
    backlog: Backlog | None = None
    """None for a quota."""
    used_messages: float = 0.0
    """Per second, recently; for the quota of clients, what the busiest one sends."""
    used_bytes: float = 0.0
    refused_last_minute: int = 0
    """Refusals, also of messages that are sent again; for a consumer group pulls held, for a
    backlog that slows sends answers held."""
    refused: int = 0
    """The same since the brokers started."""
    dropped: int = 0
    """How many of these were sent one-way."""
    since: datetime | None = None
    """Since when it has been refusing; None while it is not."""
    lags: Mapping[str, int] = field(default_factory=dict)
    """How far each group of a backlog is behind, on the broker where it is furthest behind."""
    uncounted: Mapping[str, str] = field(default_factory=dict)
    """Groups of a backlog that do not count, and why."""
    brokers: tuple[str, ...] = ()
    by_broker: Mapping[str, "Limit"] = field(default_factory=dict)
    """The same for each broker alone; empty if there is only one."""

    @property
    def is_refusing(self) -> bool:
        """Whether it refuses, holds or slows something now."""
        return self.since is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupWindow:
    """What a broker remembers of a de-duplicated topic."""

    topic: str
    broker: str
    window_ms: int
    """How long a message is remembered, as the topic's attribute says."""
    most: int
    """How many messages are remembered at most."""
    known: int | None
    """How many are remembered now; None until a producer sends to the topic after the broker's
    start."""
    span_ms: int
    """The time between the arrivals of the oldest and the newest of them."""
    duplicates: int
    """Messages that were sent again and not stored, since the broker started."""
    cut: int
    """Messages that were forgotten before their time, because there were too many."""

    @classmethod
    def reported(cls, broker: str, each: ReportedWindow) -> "DedupWindow":
        """From a broker's report."""
        return cls(
            topic=each.topic,
            broker=broker,
            window_ms=each.time_ms,
            most=each.most,
            known=each.known,
            span_ms=each.span_ms,
            duplicates=each.duplicates,
            cut=each.cut,
        )


# ---- looking


async def limits(cluster: ClusterCalls) -> Listing[Limit]:
    """All limits of all masters. Brokers that know no limits have none."""
    by_broker, errors = await _reports(cluster)
    found: dict[tuple[str, str, bool], dict[str, ReportedLimit]] = {}
    for broker, report in by_broker.items():
        for each in report.limits:
            key = (each.scope, each.name, each.backlog is not None)
            found.setdefault(key, {})[broker] = each
    now_ms = cluster.client.clock()
    rows = [_summed(by_broker, now_ms) for _, by_broker in sorted(found.items())]
    return Listing(tuple(rows), errors)


async def dedup_windows(cluster: ClusterCalls) -> Listing[DedupWindow]:
    """All de-duplicated topics of all masters, by topic and broker. Brokers that cannot
    de-duplicate have none."""
    by_broker, errors = await _reports(cluster)
    found = [
        DedupWindow.reported(broker, each)
        for broker, report in by_broker.items()
        for each in report.windows
    ]
    rows = sorted(found, key=lambda each: (each.topic, each.broker))
    return Listing(tuple(rows), errors)


async def _reports(
    cluster: ClusterCalls,
) -> tuple[Mapping[str, LimitReport], tuple[BrokerFailure, ...]]:
    """The reports of all masters, and those that do not report."""

    async def ask(_: str, address: str) -> LimitReport:
        try:
            response = await cluster.call(address, ListLimits())
        except BrokerRefusal as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return LimitReport()
        return LimitReport.from_json(response.body)

    targets, without = await cluster.masters_and_missing()
    answers = await cluster.ask_each(targets, ask)
    return answers.by_broker, (*answers.errors, *without)


def _summed(by_broker: Mapping[str, ReportedLimit], now_ms: int) -> Limit:
    every = list(by_broker.values())
    lasting_ms = [each.lasting_ms for each in every if each.lasting_ms is not None]
    lags: dict[str, int] = {}
    uncounted: dict[str, str] = {}
    for each in every:
        for group, lag in each.lags.items():
            lags[group] = max(lag, lags.get(group, 0))
        uncounted |= each.uncounted
    first = every[0]
    return Limit(
        scope=first.scope,
        name=first.name or "*",
        messages=_sum(each.messages for each in every),
        bytes=_sum(each.bytes for each in every),
        backlog=None if first.backlog is None else read_backlog(first.backlog),
        used_messages=sum(each.used_messages for each in every),
        used_bytes=sum(each.used_bytes for each in every),
        refused_last_minute=sum(each.refused_last_minute for each in every),
        refused=sum(each.refused for each in every),
        dropped=sum(each.dropped for each in every),
        since=time_of(now_ms - max(lasting_ms)) if lasting_ms else None,
        lags=lags,
        uncounted={group: why for group, why in uncounted.items() if group not in lags},
        brokers=tuple(by_broker),
        by_broker={name: _summed({name: each}, now_ms) for name, each in by_broker.items()}
        if len(by_broker) > 1
        else {},
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if known else None


# ---- changing


async def set_quota(
    cluster: ClusterCalls,
    scope: str,
    name: str,
    *,
    messages: int | None,
    size_bytes: int | None,
    brokers: Sequence[str],
    dry_run: bool,
) -> list[SettingChange]:
    """Limit what is sent or delivered per second, on each broker."""
    kind = checked_scope(scope, name)
    if messages is None and size_bytes is None:
        raise ValueError("a quota needs a limit: messages, bytes, or both")
    wanted: dict[str, str | None] = {}
    for unit, limit in zip(UNITS, (messages, size_bytes), strict=True):
        if limit is not None:
            check_whole(unit, limit, 1, MOST_PER_SECOND)
            wanted[quota_attributes(kind, name)[unit]] = str(limit)
    return await _update(cluster, kind, name, wanted, brokers=brokers, dry_run=dry_run)


async def set_backlog(
    cluster: ClusterCalls,
    topic: str,
    named: Sequence[str],
    *,
    messages: int | None,
    seconds: int | None,
    action: str,
    brokers: Sequence[str],
    dry_run: bool,
) -> list[SettingChange]:
    """Refuse or slow sends to a topic while one of the groups is too far behind."""
    kind = checked_scope(Scope.TOPIC.value, topic)
    check_names("groups", named)
    if (messages is None) == (seconds is None):
        raise ValueError(
            "a largest backlog is either a number of messages or of seconds; give one of them"
        )
    if messages is not None:
        check_whole("messages", messages, 1, MOST_BACKLOG)
    if seconds is not None:
        check_whole("seconds", seconds, 1, MOST_BACKLOG_S)
    if action not in [each.value for each in BacklogAction]:
        raise ValueError(f"action is {action!r}, must be refuse or slow")
    if not named:
        raise ValueError("a largest backlog names its groups: others must not stop producers")
    most = messages if messages is not None else seconds
    assert most is not None
    limit = Backlog(
        most, seconds is not None, BacklogAction(action), tuple(map(check_group, named))
    )
    text = str(limit)
    try:
        read_backlog(text)
    except ValueError as error:
        raise ValueError(f"the backlog {error}") from error
    await _check_groups(cluster, named)
    return await _update(cluster, kind, topic, {BACKLOG: text}, brokers=brokers, dry_run=dry_run)


async def _check_groups(cluster: ClusterCalls, named: Sequence[str]) -> None:
    """Raises NotFound for a group that no broker has."""
    tables = (await groups.group_tables(cluster)).all()
    known = set().union(*tables.values())
    for group in named:
        if group not in known:
            raise unknown_name("group", group, known)


async def unset_limits(
    cluster: ClusterCalls,
    scope: str,
    name: str,
    *,
    which: Collection[str],
    brokers: Sequence[str],
    dry_run: bool,
) -> list[SettingChange]:
    """Remove limits; all of them unless some are named."""
    kind = checked_scope(scope, name)
    check_names("which", which)
    for each in which:
        if each not in KINDS or (each == "backlog" and kind is not Scope.TOPIC):
            raise ValueError(f"{each!r} is not a limit of a {scope}, allowed: {', '.join(KINDS)}")
    wanted: dict[str, str | None] = {
        attribute: None
        for unit, attribute in quota_attributes(kind, name).items()
        if not which or unit in which
    }
    if kind is Scope.TOPIC and (not which or "backlog" in which):
        wanted[BACKLOG] = None
    return await _update(cluster, kind, name, wanted, brokers=brokers, dry_run=dry_run)


def checked_scope(scope: str, name: str) -> Scope:
    """The scope of a limit. Raises ValueError for anything that cannot have one."""
    known = {each.value: each for each in Scope}
    if scope not in known:
        raise ValueError(f"scope is {scope!r}, must be one of {', '.join(known)}")
    match known[scope]:
        case Scope.TOPIC:
            check_topic(name)
            if is_retry_topic(name) or is_dlq_topic(name) or is_system_topic(name):
                raise ValueError(
                    f"topic {name} cannot be limited: retries, dead letters and the broker's own"
                    " messages are never refused"
                )
        case Scope.CLIENT:
            if name not in ("", "*"):
                raise ValueError(f"one quota holds for every client, so {name!r} must be * or left")
        case Scope.CONSUMER_GROUP:
            if is_system_group(check_group(name)):
                raise ValueError(f"group {name} belongs to RocketMQ's tools and cannot be limited")
        case Scope.PRODUCER_GROUP:
            check_group(name)
    return known[scope]


async def _update(
    cluster: ClusterCalls,
    scope: Scope,
    name: str,
    attributes: Attributes,
    *,
    brokers: Sequence[str],
    dry_run: bool,
) -> list[SettingChange]:
    match scope:
        case Scope.TOPIC:
            wanted = topics.wanted_topic(
                queues=None,
                read_queues=None,
                write_queues=None,
                perm=None,
                order=None,
                attributes=attributes,
            )
            return await topics.update_topic(
                cluster, name, wanted, brokers=brokers, dry_run=dry_run
            )
        case Scope.CONSUMER_GROUP:
            return await group_changes.update_group(
                cluster,
                name,
                group_changes.wanted_group(attributes),
                brokers=brokers,
                dry_run=dry_run,
            )
        case Scope.PRODUCER_GROUP | Scope.CLIENT:
            return await _update_brokers(cluster, attributes, brokers=brokers, dry_run=dry_run)


async def _update_brokers(
    cluster: ClusterCalls, attributes: Attributes, *, brokers: Sequence[str], dry_run: bool
) -> list[SettingChange]:
    """Change attributes of each broker's own topic. Nothing is changed unless all answer."""
    targets = await cluster.masters(brokers=brokers)
    answers = await cluster.ask_each(
        targets, lambda broker, address: topics.topic_config(cluster, address, broker)
    )
    configs = answers.all()
    changes = [
        SettingChange(broker, each, config.attributes.get(each), after)
        for broker, config in configs.items()
        for each, after in attributes.items()
        if config.attributes.get(each) != after
    ]
    if dry_run or not changes:
        return changes
    concerned = {name: targets[name] for name in sorted({change.broker for change in changes})}
    requests = {
        name: topics.change_request(
            msgspec.structs.replace(
                configs[name],
                attributes={
                    f"-{change.setting}" if change.after is None else f"+{change.setting}": str(
                        change.after or ""
                    )
                    for change in changes
                    if change.broker == name
                },
            )
        )
        for name in concerned
    }
    await cluster.change_each("the quota is changed", concerned, lambda name: (requests[name], b""))
    return changes
