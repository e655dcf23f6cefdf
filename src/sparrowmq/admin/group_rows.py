"""Groups in a list: what one line says of each, with few questions per group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sparrowmq.admin.all_progress import all_progress
from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.errors import AdminError, NoBrokerAnswers, failures_of
from sparrowmq.admin.groups import GroupTables, find_group, group_tables
from sparrowmq.admin.lag import KnownProgress, known_lag
from sparrowmq.admin.members import connected
from sparrowmq.admin.values import BrokerFailure, Listing, distinct
from sparrowmq.admin.waiting import with_waiting
from sparrowmq.client.argument_checks import check_names
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.names import check_group, is_retry_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in a list. What no broker could say is None."""

    name: str
    model: MessageModel | None
    """None while no member is online."""
    members: int | None
    topics: tuple[str, ...] | None
    """Topics in which it has progress or members, without its own retry topic."""
    lag: int | None
    oldest_waiting: datetime | None
    consumed_per_s: float | None


async def group_rows(
    cluster: ClusterCalls, names: Sequence[str], *, waiting: bool
) -> Listing[GroupRow]:
    """A row for each name, in their order. A group of which nothing could be learned has a row
    without figures, and the reason in `errors`. Raises NoBrokerAnswers."""
    check_names("names", names)
    for name in names:
        check_group(name)
    # Of a group without progress, brokers say only in the table of all groups that it exists
    tables = (await group_tables(cluster)).by_broker if names else {}
    addresses = await cluster.readable() if names else {}
    existing = set().union(*tables.values())
    # The table of all groups, unless most of it would be of no use
    known = await all_progress(cluster, addresses, names) if 2 * len(names) > len(existing) else {}
    seen = _Seen(addresses, tables, known)
    asks = [partial(_row, cluster, name, waiting, seen) for name in names]
    results = await at_once(asks)
    for result in results:
        if isinstance(result, NoBrokerAnswers):
            raise result
    rows, errors = [], list[BrokerFailure]()
    for name, result in zip(names, results, strict=True):
        if isinstance(result, AdminError):
            rows.append(_unknown(name))
            errors += failures_of(f"group {name}", result)
        else:
            row, failures = result
            rows.append(row)
            errors += failures
    return Listing(tuple(rows), distinct(errors))


def _unknown(name: str) -> GroupRow:
    return GroupRow(
        name=name,
        model=None,
        members=None,
        topics=None,
        lag=None,
        oldest_waiting=None,
        consumed_per_s=None,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was asked about all groups at once."""

    addresses: Mapping[str, str]
    tables: GroupTables
    known: KnownProgress


async def _row(
    cluster: ClusterCalls, name: str, waiting: bool, seen: _Seen
) -> tuple[GroupRow, tuple[BrokerFailure, ...]]:
    online = await connected(cluster, name, seen.addresses)
    if not any(name in table for table in seen.tables.values()):
        await find_group(cluster, name, online, seen.tables)
    lag = await known_lag(cluster, name, None, online, owners=False, known=seen.known)
    if waiting and lag.lag:
        lag = await with_waiting(cluster, lag)
    first = next((each for each in online.by_broker.values() if each.connection_set), None)
    topics = {each.queue.topic for each in lag.queues} | {
        each.topic for each in online.subscriptions
    }
    row = GroupRow(
        name=name,
        model=None if first is None else first.message_model,
        members=len(online.members),
        topics=tuple(sorted(each for each in topics if not is_retry_topic(each))),
        lag=lag.lag,
        oldest_waiting=min(filter(None, (q.oldest_waiting for q in lag.queues)), default=None),
        consumed_per_s=lag.consumed_per_s,
    )
    return row, lag.errors
