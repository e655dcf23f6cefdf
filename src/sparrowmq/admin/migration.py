"""Migration: copying topics, groups, settings and progress from one cluster to another.

    export_state ▶ ClusterState ▶ import_state: plan ▶ an item for each topic, group and progress
                                                run  ▶ the same, done

Messages are not copied. What the target already has is never changed, so a run can be stopped and
repeated: the second one does what is left. Progress is moved by time, because offsets mean nothing
in another cluster: a group continues with the first message that was stored after the last one that
it has consumed everywhere, and only ever moves forward.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.errors import AdminError, InUse
from sparrowmq.admin.group_changes import check_offline
from sparrowmq.admin.group_changes import create_request as create_group_request
from sparrowmq.admin.groups import all_configs
from sparrowmq.admin.lag import QueueLag, broker_lag, committed
from sparrowmq.admin.offsets import commit_request, offset_at_time, queue_ends
from sparrowmq.admin.topics import all_topic_configs, create_request, until_routed
from sparrowmq.admin.values import BrokerFailure, time_of
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import (
    dlq_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    topic_fault,
)
from sparrowmq.protocol.perm import is_inherited
from sparrowmq.protocol.topic_config import TopicConfig


class MovedThing(StrEnum):
    """What is moved."""

    TOPIC = "topic"
    GROUP = "group"
    PROGRESS = "progress"


class MigrationState(StrEnum):
    """The outcome, or what it would be."""

    TO_DO = "to do"
    DONE = "done"
    THERE = "there already"
    DIFFERS = "differs"
    LEFT = "cannot move"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MigrationItem:
    """One topic, group or progress of a group in a topic (`group@topic`)."""

    what: MovedThing
    name: str
    state: MigrationState
    why: str = ""
    """Why it does not move, or how it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What one cluster has, without its messages."""

    where: str
    topics: Mapping[str, Mapping[str, TopicConfig]]
    """By name, then by broker."""
    groups: Mapping[str, SubscriptionGroupConfig]
    progress: Mapping[tuple[str, str], int | None]
    """Group and topic → milliseconds: everything stored before is consumed. None: nothing is."""
    dead_letters: tuple[str, ...] = ()
    """Groups that have a dead-letter topic."""
    errors: tuple[BrokerFailure, ...] = ()


# ---- reading


async def export_state(
    cluster: ClusterCalls, where: str, *, topics: str = "*", groups: str = "*"
) -> ClusterState:
    """What a cluster has, as far as its brokers answer; the others are in `errors`. `topics` and
    `groups` are patterns. Raises NoBrokerAnswers."""

    async def ask(
        _: str, address: str
    ) -> tuple[dict[str, TopicConfig], dict[str, SubscriptionGroupConfig]]:
        return await all_topic_configs(cluster, address), await all_configs(cluster, address)

    addresses = await cluster.readable()
    answers = await cluster.ask_each(addresses, ask)
    found: dict[str, dict[str, TopicConfig]] = {}
    known: dict[str, SubscriptionGroupConfig] = {}
    for broker, (its_topics, its_groups) in answers.by_broker.items():
        for name, config in its_topics.items():
            found.setdefault(name, {})[broker] = config
        known = {**its_groups, **known}
    chosen = {
        name: config
        for name, config in sorted(known.items())
        if not is_system_group(name) and fnmatchcase(name, groups)
    }
    progress, errors = await _read_progress(cluster, addresses, chosen, topics)
    return ClusterState(
        where=where,
        topics=moving_topics(found, topics),
        groups=chosen,
        progress=progress,
        dead_letters=dead_letters(found, chosen),
        errors=(*answers.errors, *errors),
    )


def moving_topics(
    found: Mapping[str, Mapping[str, TopicConfig]], pattern: str
) -> dict[str, Mapping[str, TopicConfig]]:
    """The users' topics that match a pattern. Retry topics move with their groups."""
    return {
        name: by_broker
        for name, by_broker in sorted(found.items())
        if not (is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
        and not _is_of_servers(name, by_broker)
        and fnmatchcase(name, pattern)
    }


def _is_of_servers(topic: str, by_broker: Mapping[str, TopicConfig]) -> bool:
    """Brokers have topics named like themselves and like their cluster, from which others inherit,
    and one for replies."""
    inherits = any(is_inherited(config.perm) for config in by_broker.values())
    return inherits or topic.endswith("_REPLY_TOPIC")


def dead_letters(
    found: Mapping[str, Mapping[str, TopicConfig]], groups: Iterable[str]
) -> tuple[str, ...]:
    """The groups that have a dead-letter topic."""
    return tuple(group for group in groups if dlq_topic(group) in found)


async def _read_progress(
    cluster: ClusterCalls, addresses: Mapping[str, str], groups: Iterable[str], topics: str
) -> tuple[dict[tuple[str, str], int | None], list[BrokerFailure]]:
    """Ask about every group at every broker, eight requests at once."""
    places = [(group, broker) for group in groups for broker in addresses]
    asks = [
        partial(broker_lag, cluster, addresses[broker], group, None) for group, broker in places
    ]
    queues: dict[tuple[str, str], list[QueueLag]] = {}
    failures: dict[str, BrokerFailure] = {}
    for (group, broker), answer in zip(places, await at_once(asks), strict=True):
        if isinstance(answer, AdminError):
            reason = f"progress of {group} is not known: {answer}"
            failures.setdefault(broker, BrokerFailure(broker, addresses[broker], reason))
            continue
        for each in answer[0]:
            name = each.queue.topic
            if not is_retry_topic(name) and fnmatchcase(name, topics):
                queues.setdefault((group, name), []).append(each)
    return {key: consumed_until(found) for key, found in sorted(queues.items())}, [
        *failures.values()
    ]


def consumed_until(queues: Sequence[QueueLag]) -> int | None:
    """The time up to which a group has consumed all queues of a topic; None if there is a queue of
    which it has consumed nothing, so that it has to start with the oldest message."""
    behind = [each for each in queues if each.lag and each.consumer_offset is not None]
    counted = behind or [each for each in queues if each.last_consumed is not None]
    times = [each.last_consumed for each in counted]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return None
    until = min(known) if behind else max(known)
    return round(until.timestamp() * 1000) + 1


# ---- writing


async def import_state(
    target: ClusterCalls, state: ClusterState, *, dry_run: bool
) -> list[MigrationItem]:
    """Create in a cluster what it lacks. Items are independent: one that fails does not stop the
    others."""
    masters = await target.masters()
    answers = await target.ask_each(masters, lambda _, address: _present(target, address))
    present = answers.all()
    items = await _each(
        {
            (MovedThing.TOPIC, name): partial(
                _topic, target, masters, name, by_broker, present, dry_run=dry_run
            )
            for name, by_broker in state.topics.items()
        }
    )
    items += await _each(
        {
            (MovedThing.GROUP, name): partial(
                _group, target, masters, name, config, present, dry_run=dry_run
            )
            for name, config in state.groups.items()
        }
    )
    usable = {
        each.name
        for each in items
        if each.state not in (MigrationState.LEFT, MigrationState.FAILED)
    }
    items += [
        MigrationItem(MovedThing.TOPIC, dlq_topic(group), MigrationState.LEFT, _DEAD_LETTERS)
        for group in state.dead_letters
    ]
    return items + await _each(
        {
            (MovedThing.PROGRESS, f"{group}@{topic}"): partial(
                _progress, target, masters, group, topic, until_ms, dry_run=dry_run
            )
            for (group, topic), until_ms in state.progress.items()
            if group in usable and topic in usable
        }
    )


async def _each(
    asks: Mapping[tuple[MovedThing, str], Callable[[], Awaitable[MigrationItem]]],
) -> list[MigrationItem]:
    """The items in order, processed concurrently; one that fails says why."""
    results = await at_once(list(asks.values()))
    return [
        MigrationItem(*key, MigrationState.FAILED, str(result))
        if isinstance(result, AdminError)
        else result
        for key, result in zip(asks, results, strict=True)
    ]


_DEAD_LETTERS = "dead letters are messages, which are not copied; consume or export them first"
_Present = tuple[dict[str, TopicConfig], dict[str, SubscriptionGroupConfig]]


async def _present(cluster: ClusterCalls, address: str) -> _Present:
    return await all_topic_configs(cluster, address), await all_configs(cluster, address)


async def _topic(
    target: ClusterCalls,
    masters: Mapping[str, str],
    name: str,
    by_broker: Mapping[str, TopicConfig],
    present: Mapping[str, _Present],
    *,
    dry_run: bool,
) -> MigrationItem:
    item = partial(MigrationItem, MovedThing.TOPIC, name)
    fault = topic_fault(name)
    if fault is not None:
        return item(MigrationState.LEFT, fault)
    wanted = {broker: _config_at(broker, by_broker) for broker in masters}
    there = {broker: topics[name] for broker, (topics, _) in present.items() if name in topics}
    differences = [
        text for broker, has in there.items() for text in _differences(broker, has, wanted[broker])
    ]
    if differences:
        return item(MigrationState.DIFFERS, "; ".join(differences))
    missing = {broker: masters[broker] for broker in masters if broker not in there}
    if not missing:
        return item(MigrationState.THERE)
    numbers = sorted({wanted[broker].write_queue_nums for broker in missing})
    queues = "queue" if numbers == [1] else "queues"
    how = f"{' or '.join(map(str, numbers))} {queues} on {', '.join(sorted(missing))}"
    if dry_run:
        return item(MigrationState.TO_DO, how)
    requests = {broker: create_request(wanted[broker]) for broker in missing}
    done = await target.change_each(
        f"topic {name} is set", missing, lambda broker: (requests[broker], b"")
    )
    await until_routed(target, requests, done)
    return item(MigrationState.DONE, how)


def _config_at(broker: str, by_broker: Mapping[str, TopicConfig]) -> TopicConfig:
    """The settings with which a broker gets a topic: those of the broker of the same name, else of
    the one with the most queues."""
    if broker in by_broker:
        return by_broker[broker]
    return max(by_broker.values(), key=lambda each: (each.write_queue_nums, each.read_queue_nums))


_COMPARED = ("read_queue_nums", "write_queue_nums", "perm", "order", "attributes")


def _differences(broker: str, has: TopicConfig, wanted: TopicConfig) -> list[str]:
    return [
        f"{broker} has {_words(name)} {_text(getattr(has, name))},"
        f" not {_text(getattr(wanted, name))}"
        for name in _COMPARED
        if getattr(has, name) != getattr(wanted, name)
    ]


def _words(name: str) -> str:
    return name.replace("_nums", "s").replace("_", " ")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in sorted(value.items())) or "none"
    return str(value)


async def _group(
    target: ClusterCalls,
    masters: Mapping[str, str],
    name: str,
    config: SubscriptionGroupConfig,
    present: Mapping[str, _Present],
    *,
    dry_run: bool,
) -> MigrationItem:
    item = partial(MigrationItem, MovedThing.GROUP, name)
    there = {broker: groups[name] for broker, (_, groups) in present.items() if name in groups}
    differing = sorted({each for has in there.values() for each in _differing(has, config)})
    if differing:
        return item(MigrationState.DIFFERS, f"the target has other {', '.join(differing)}")
    missing = {broker: masters[broker] for broker in masters if broker not in there}
    if not missing:
        return item(MigrationState.THERE)
    how = f"on {', '.join(sorted(missing))}"
    if dry_run:
        return item(MigrationState.TO_DO, how)
    request = create_group_request(config)
    await target.change_each(f"group {name} is set", missing, lambda _: request)
    return item(MigrationState.DONE, how)


_GROUP_FIELDS = {
    "consume_enable": "consume switch",
    "consume_broadcast_enable": "broadcast switch",
    "consume_message_orderly": "order",
    "retry_max_times": "number of retries",
    "retry_queue_nums": "number of retry queues",
    "attributes": "attributes",
}


def _differing(has: SubscriptionGroupConfig, wanted: SubscriptionGroupConfig) -> list[str]:
    return [
        words
        for name, words in _GROUP_FIELDS.items()
        if getattr(has, name) != getattr(wanted, name)
    ]


# ---- progress


async def _progress(
    target: ClusterCalls,
    masters: Mapping[str, str],
    group: str,
    topic: str,
    until_ms: int | None,
    *,
    dry_run: bool,
) -> MigrationItem:
    item = partial(MigrationItem, MovedThing.PROGRESS, f"{group}@{topic}")
    how = f"from {_time(until_ms)} on"
    route = await target.find_route(topic)
    if route is None:  # a dry run created no topic
        return item(MigrationState.TO_DO, how)
    try:
        await check_offline(target, group, "stop them: they would store their own progress over it")
    except InUse as error:
        return item(MigrationState.LEFT, str(error))
    queues = [each for each in subscribe_queues(topic, route) if each.broker_name in masters]
    moves = await _moves(target, masters, group, queues, until_ms)
    if not moves:
        return item(MigrationState.THERE, "the group is there already, or further")
    if dry_run:
        return item(MigrationState.TO_DO, how)
    for queue, offset in moves.items():
        await target.call(masters[queue.broker_name], commit_request(group, queue, offset))
    return item(MigrationState.DONE, how)


async def _moves(
    target: ClusterCalls,
    masters: Mapping[str, str],
    group: str,
    queues: Sequence[MessageQueue],
    until_ms: int | None,
) -> dict[MessageQueue, int]:
    """Queues in which the group is not yet where it should be."""

    async def ask(queue: MessageQueue) -> tuple[int | None, int]:
        address = masters[queue.broker_name]
        low, high = await queue_ends(target, address, queue)
        if until_ms is None:
            goal = low
        else:
            goal = min(high, max(low, await offset_at_time(target, address, queue, until_ms)))
        return await committed(target, address, group, queue), goal

    results = await at_once([partial(ask, queue) for queue in queues])
    moves: dict[MessageQueue, int] = {}
    for queue, result in zip(queues, results, strict=True):
        if isinstance(result, AdminError):
            raise result
        now, goal = result
        if now is None or now < goal:
            moves[queue] = goal
    return moves


def _time(until_ms: int | None) -> str:
    at = time_of(until_ms)
    return "the oldest message" if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"
