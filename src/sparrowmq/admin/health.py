"""Whether a cluster is healthy, in a few checks that a monitor can repeat every minute.

`sparrowmq doctor` looks deeper and says why; this only tells whether an operator has to look.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from sparrowmq.admin.brokers import BrokerInfo, brokers
from sparrowmq.admin.cluster_calls import ClusterCalls, at_once, while_it_answers
from sparrowmq.admin.errors import AdminError, is_unsupported, shown
from sparrowmq.admin.name_servers import name_servers
from sparrowmq.admin.slaves import slaves_of
from sparrowmq.admin.topics import all_topic_configs, topic_stats
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.protocol.headers.statistics import GetBrokerConsumeStats
from sparrowmq.protocol.offsets_body import ConsumeStatsList
from sparrowmq.protocol.perm import is_readable

MOST_DISK = 0.85
"""The used part of a disk above which Apache's brokers and ours delete messages early."""


class Health(StrEnum):
    """The result of a check."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """A server did not report it."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """What was checked, the result, and the facts."""

    check: str
    state: Health
    text: str


async def health(
    cluster: ClusterCalls, *, max_lag: int | None, max_disk: float
) -> list[HealthCheck]:
    """Run all checks; lag only if a limit is given, since that check is expensive. Raises
    NameServersAway if nothing can be asked."""
    if not 0 < max_disk <= 1:
        raise ValueError(f"max_disk is {max_disk}, must be more than 0 and at most 1")
    servers = await name_servers(cluster)
    silent = [each.address for each in servers if not each.answers]
    checks = [_check("name-servers", silent, "do not answer", _all(len(servers), "answer"))]
    listed = await brokers(cluster)
    if not listed:
        return [*checks, HealthCheck("brokers", Health.BAD, "no broker is registered")]
    checks += _of_brokers(listed.items, max_disk)
    checks.append(await _slaves(cluster, listed.items))
    if max_lag is not None:
        checks.append(await _lag(cluster, max_lag))
    return checks


def _all(count: int, do: str) -> str:
    return f"it {do}s" if count == 1 else f"all {count} {do}"


def _of_brokers(listed: tuple[BrokerInfo, ...], max_disk: float) -> Iterator[HealthCheck]:
    silent = [_name(each) for each in listed if each.runtime is None]
    yield _check("brokers", silent, "do not answer", _all(len(listed), "answer"))
    masters = {each.name for each in listed if each.is_master}
    headless = sorted({each.name for each in listed} - masters)
    yield _check(
        "masters",
        headless,
        "have no master",
        "the broker name has one" if len(masters) == 1 else f"all {len(masters)} names have one",
    )
    running = [(each, each.runtime) for each in listed if each.runtime is not None]
    busy = [f"{_name(each)} ({now.busy_reason})" for each, now in running if now.busy_reason]
    yield _check("sends", busy, "refuse sends", "no broker refuses sends")
    yield _disk(_disks(listed), max_disk)


async def _slaves(cluster: ClusterCalls, listed: tuple[BrokerInfo, ...]) -> HealthCheck:
    """Check registered slaves that lack messages, and slaves that a master remembers but that do
    not copy from it: those are no longer registered."""
    masters = {each.name: each.address for each in listed if each.is_master and each.runtime}
    asks = [partial(slaves_of, cluster, name, address) for name, address in masters.items()]
    away: list[str] = []
    unknown: list[str] = []
    for name, answer in zip(masters, await at_once(asks), strict=True):
        if not isinstance(answer, AdminError):
            away += [
                f"{name} (slave {each.broker_id}, away)" for each in answer if not each.follows
            ]
        elif not is_unsupported(answer):
            unknown.append(f"{name}: {answer}")
    behind = [
        f"{_name(each)} ({each.runtime.behind_bytes:,} bytes)"
        for each in listed
        if each.runtime is not None and not each.is_master and each.runtime.behind_bytes
    ]
    wrong = [*away, *behind]
    if unknown and not wrong:
        return HealthCheck("slaves", Health.UNKNOWN, shown(unknown))
    return _check("slaves", wrong, "are away or lack messages", "no slave is behind or away")


def _disks(listed: tuple[BrokerInfo, ...]) -> dict[str, float | None]:
    """The used part of each broker's disk, of those that answer."""
    return {_name(each): each.runtime.disk_used for each in listed if each.runtime is not None}


def _disk(used: dict[str, float | None], max_disk: float) -> HealthCheck:
    known = {name: part for name, part in used.items() if part is not None and part >= 0}
    full = [f"{name} ({part:.0%})" for name, part in known.items() if part > max_disk]
    if not full and len(known) < len(used):
        missing = shown(set(used) - set(known))
        return HealthCheck("disk", Health.UNKNOWN, f"{missing}: no figure")
    most = max(known.values(), default=0.0)
    return _check("disk", full, f"use more than {max_disk:.0%}", f"at most {most:.0%} used")


async def _lag(cluster: ClusterCalls, max_lag: int) -> HealthCheck:
    try:
        addresses = await cluster.readable()
        answers = await cluster.ask_each(
            addresses, lambda _, address: _lag_by_topic(cluster, address)
        )
        # A group has read no messages of its topics where it has no progress in them
        topics_of: dict[str, set[str]] = {}
        for group, topic in {place for table in answers.by_broker.values() for place in table}:
            topics_of.setdefault(topic, set()).add(group)
        held = await cluster.ask_each(
            {name: addresses[name] for name in answers.by_broker},
            lambda name, address: _unread(cluster, address, topics_of, answers.by_broker[name]),
        )
    except AdminError as error:
        return HealthCheck("lag", Health.UNKNOWN, str(error))
    sums: dict[str, int] = {}
    for table in (*answers.by_broker.values(), *held.by_broker.values()):
        for (group, _), lag in table.items():
            sums[group] = sums.get(group, 0) + lag
    over = [f"{group} ({lag:,})" for group, lag in sums.items() if lag > max_lag]
    errors = (*answers.errors, *held.errors)
    if not over and errors:
        return HealthCheck("lag", Health.UNKNOWN, _silent(errors))
    most = max(sums.values(), default=0)
    return _check("lag", over, f"lag by more than {max_lag:,}", f"at most {most:,}")


_LagByTopic: TypeAlias = dict[tuple[str, str], int]
"""Group and topic → messages of one broker that the group has not read."""


async def _lag_by_topic(cluster: ClusterCalls, address: str) -> _LagByTopic:
    """Of the groups with progress."""
    response = await cluster.call(address, GetBrokerConsumeStats())
    found: _LagByTopic = {}
    for row in ConsumeStatsList.from_json(response.body).consume_stats_list:
        for group, by_topic in row.items():
            for each in by_topic:
                for queue, pair in each.offset_table.items():
                    place = group, queue.topic
                    found[place] = found.get(place, 0) + max(0, pair.lag)
    return found


async def _unread(
    cluster: ClusterCalls,
    address: str,
    groups: Mapping[str, Collection[str]],
    known: Collection[tuple[str, str]],
) -> _LagByTopic:
    """Of the groups of each topic that have no progress in it on this broker."""
    missing = {
        topic: [group for group in names if (group, topic) not in known]
        for topic, names in groups.items()
    }
    if not any(missing.values()):
        return {}
    configs = await all_topic_configs(cluster, address)
    asked = {
        topic: partial(topic_stats, cluster, address, topic)
        for topic, config in configs.items()
        if missing.get(topic) and is_readable(config.perm)
    }
    found: _LagByTopic = {}
    for topic, stats in (await while_it_answers(asked)).items():
        readable = [
            each.max_offset - each.min_offset
            for queue, each in stats.offset_table.items()
            if queue.queue_id < configs[topic].read_queue_nums
        ]
        found |= {(group, topic): sum(readable) for group in missing[topic]}
    return found


def _silent(errors: tuple[BrokerFailure, ...]) -> str:
    return f"{shown(each.broker for each in errors)}: no answer"


def _name(broker: BrokerInfo) -> str:
    return broker.name if broker.is_master else f"{broker.name} (slave {broker.broker_id})"


def _check(check: str, wrong: list[str], why: str, fine: str) -> HealthCheck:
    if wrong:
        return HealthCheck(check, Health.BAD, f"{why}: {shown(wrong)}")
    return HealthCheck(check, Health.GOOD, fine)
