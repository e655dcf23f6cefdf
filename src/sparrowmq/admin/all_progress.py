"""The progress of all groups of a broker, with a few requests instead of several for each group.

    broker-a ── 21 ▶ settings of all its topics
             ── 317 ▶ the queues of every group, as 208 reports them for one
             ── 43 ▶ stored offsets: 317 says 0 where there is none, too
             ── 202 for each topic in which messages wait: where its queues begin

Groups for which this may differ from a broker's answer about them alone are left out, and so are
brokers that do not serve it. They are asked about each group, as in `lag.py`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once, while_it_answers
from sparrowmq.admin.errors import AdminError, NotFound
from sparrowmq.admin.groups import GroupTables, find_group, group_tables
from sparrowmq.admin.lag import BrokerLag, GroupLag, KnownProgress, QueueLag, known_lag
from sparrowmq.admin.members import connected
from sparrowmq.admin.topics import all_topic_configs, topic_stats
from sparrowmq.admin.values import time_of
from sparrowmq.client.argument_checks import check_names
from sparrowmq.protocol.headers.statistics import GetAllConsumerOffsets, GetBrokerConsumeStats
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group
from sparrowmq.protocol.offsets_body import (
    ConsumerOffsetTable,
    ConsumeStats,
    ConsumeStatsList,
    OffsetPair,
    TopicOffset,
)
from sparrowmq.protocol.topic_config import TopicConfig


async def group_lags(
    cluster: ClusterCalls, groups: Sequence[str], *, owners: bool
) -> list[GroupLag]:
    """Progress of many groups, without those that are not known. Raises AdminError."""
    check_names("groups", groups)
    for group in groups:
        check_group(group)
    addresses = await cluster.readable()
    tables = (await group_tables(cluster)).by_broker
    known = await all_progress(cluster, addresses, groups)
    asks = [partial(_lag, cluster, group, addresses, tables, known, owners) for group in groups]
    found = []
    for result in await at_once(asks):
        if not isinstance(result, AdminError):
            found.append(result)
        elif not isinstance(result, NotFound):
            raise result
    return found


async def _lag(
    cluster: ClusterCalls,
    group: str,
    addresses: Mapping[str, str],
    tables: GroupTables,
    known: KnownProgress,
    owners: bool,
) -> GroupLag:
    online = await connected(cluster, group, addresses)
    if not any(group in table for table in tables.values()):
        await find_group(cluster, group, online, tables)
    return await known_lag(cluster, group, None, online, owners=owners, known=known)


async def all_progress(
    cluster: ClusterCalls, addresses: Mapping[str, str], groups: Collection[str]
) -> KnownProgress:
    """By broker and group, as far as brokers report it for all groups at once."""
    asks = [partial(_of_broker, cluster, address, groups) for address in addresses.values()]
    results = await at_once(asks)
    return {
        name: result
        for name, result in zip(addresses, results, strict=True)
        if not isinstance(result, AdminError)
    }


async def _of_broker(
    cluster: ClusterCalls, address: str, groups: Collection[str]
) -> dict[str, BrokerLag]:
    told = await told_of(cluster, address, await all_topic_configs(cluster, address))
    known = [group for group in groups if group not in told.apart]
    waiting = {
        queue.topic for group in known for queue, pair in told.queues_of(group) if pair.lag > 0
    }
    ranges = await ranges_of(cluster, address, sorted(waiting))
    return {
        group: (
            [queue_lag(told, group, *item, ranges) for item in told.queues_of(group)],
            told.rate_of(group),
        )
        for group in known
    }


@dataclass(frozen=True, slots=True)
class ToldProgress:
    """A broker's answers about all its groups."""

    address: str
    configs: Mapping[str, TopicConfig]
    progress: Mapping[str, Sequence[ConsumeStats]]
    stored: Mapping[str, Mapping[int, int]]
    apart: Collection[str]
    """Groups about which it reports less here than when asked about them alone."""

    def queues_of(self, group: str) -> list[tuple[MessageQueue, OffsetPair]]:
        """The queues in which a group has progress."""
        return [item for each in self.progress.get(group, ()) for item in each.offset_table.items()]

    def topics_of(self, group: str) -> set[str]:
        """Their topics."""
        return {queue.topic for queue, _ in self.queues_of(group)}

    def rate_of(self, group: str) -> float:
        """How many messages a group consumes per second."""
        return sum(each.consume_tps for each in self.progress.get(group, ()))


async def told_of(
    cluster: ClusterCalls, address: str, configs: Mapping[str, TopicConfig]
) -> ToldProgress:
    """Ask a broker, which has these topics, about all its groups. Raises AdminError."""
    progress = await progress_of_all(cluster, address)
    stored = await stored_offsets(cluster, address)
    told = ToldProgress(address, configs, progress, stored, ())
    return replace(told, apart=_told_differently(told))


async def ranges_of(
    cluster: ClusterCalls, address: str, topics: Iterable[str]
) -> dict[MessageQueue, TopicOffset]:
    """The offset ranges of the queues of topics on a broker. Raises AdminError."""
    asks = {topic: partial(topic_stats, cluster, address, topic) for topic in topics}
    found = await while_it_answers(asks)
    return {queue: held for each in found.values() for queue, held in each.offset_table.items()}


def queue_lag(
    told: ToldProgress,
    group: str,
    queue: MessageQueue,
    pair: OffsetPair,
    ranges: Mapping[MessageQueue, TopicOffset],
) -> QueueLag:
    """The progress of a group in a queue; `ranges` give the start of each queue."""
    offset: int | None = pair.consumer_offset
    if pair.consumer_offset <= 0:
        offset = told.stored.get(f"{queue.topic}@{group}", {}).get(queue.queue_id, -1)
    return QueueLag(
        queue=queue,
        min_offset=ranges[queue].min_offset if queue in ranges else 0,
        broker_offset=pair.broker_offset,
        consumer_offset=None if offset == -1 else offset,
        last_consumed=time_of(pair.last_timestamp),
        owner=None,
    )


async def progress_of_all(
    cluster: ClusterCalls, address: str
) -> dict[str, tuple[ConsumeStats, ...]]:
    """A broker's statistics of every group, by topic."""
    response = await cluster.call(address, GetBrokerConsumeStats())
    found: dict[str, tuple[ConsumeStats, ...]] = {}
    for row in ConsumeStatsList.from_json(response.body).consume_stats_list:
        found |= row
    return found


async def stored_offsets(cluster: ClusterCalls, address: str) -> dict[str, dict[int, int]]:
    """All offsets on a broker: `topic@group` → queue → offset."""
    response = await cluster.call(address, GetAllConsumerOffsets())
    return ConsumerOffsetTable.from_json(response.body).offset_table


def _told_differently(told: ToldProgress) -> set[str]:
    """Groups whose progress is not all in the answer. It has a topic's queues for writing, where
    208 has those for reading, and leaves out groups without settings, and topics to which a live
    group does not subscribe."""
    found = set()
    listed: dict[str, set[str]] = {}
    for key in told.stored:
        topic, _, group = key.partition("@")
        config = told.configs.get(topic)
        if group not in told.progress:
            found.add(group)
        elif config is not None:
            if group not in listed:
                listed[group] = told.topics_of(group)
            if topic not in listed[group] or config.read_queue_nums != config.write_queue_nums:
                found.add(group)
    return found
