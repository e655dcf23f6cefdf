"""The readers of a topic: groups with their lag, and their live members.

An operator has to know this before deleting a topic or removing queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, addresses_of, while_it_answers
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.admin.lag import progress_on
from sparrowmq.admin.members import CheckedConnections, subscribers
from sparrowmq.admin.topic_figures import groups_of_topic
from sparrowmq.admin.topics import topic_stats
from sparrowmq.admin.values import Listing
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_topic
from sparrowmq.protocol.offsets_body import TopicStats


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReader:
    """A group that subscribes to a topic or has progress in it."""

    group: str
    unread: Mapping[MessageQueue, int]
    """Messages that a queue has and the group has not read."""
    members: tuple[str, ...]
    """Client ids of the live members that subscribe to the topic."""

    @property
    def lag(self) -> int:
        """Messages of all queues that the group has not read."""
        return sum(self.unread.values())


async def topic_readers(cluster: ClusterCalls, topic: str) -> Listing[TopicReader]:
    """The groups by name, as known to the brokers that answer. Raises NotFound."""
    route = await cluster.route(check_topic(topic))
    addresses = addresses_of(route.broker_datas)
    known = await cluster.ask_each(
        addresses, lambda _, address: groups_of_topic(cluster, address, topic)
    )
    # Each of them reads the whole topic, also where it has no progress yet
    names = frozenset[str]().union(*known.by_broker.values())

    async def ask(_: str, address: str) -> dict[str, TopicReader]:
        return await _of_broker(cluster, address, topic, names)

    answers = await cluster.ask_each({name: addresses[name] for name in known.by_broker}, ask)
    found: dict[str, TopicReader] = {}
    for readers in answers.by_broker.values():
        for name, reader in readers.items():
            found[name] = _merged(found[name], reader) if name in found else reader
    errors = (*known.errors, *answers.errors)
    return Listing(tuple(found[name] for name in sorted(found)), errors)


async def _of_broker(
    cluster: ClusterCalls, address: str, topic: str, names: frozenset[str]
) -> dict[str, TopicReader]:
    stats = await topic_stats(cluster, address, topic)
    return await while_it_answers(
        {name: partial(_reader, cluster, address, topic, name, stats) for name in sorted(names)}
    )


async def _reader(
    cluster: ClusterCalls, address: str, topic: str, group: str, stats: TopicStats
) -> TopicReader:
    progress = (await progress_on(cluster, address, group, topic)).offset_table
    read = {queue: pair.consumer_offset for queue, pair in progress.items()}
    unread = {
        queue: max(0, held.max_offset - max(held.min_offset, read.get(queue, 0)))
        for queue, held in stats.offset_table.items()
    }
    members = await _members(cluster, address, topic, group)
    return TopicReader(group=group, unread=unread, members=members)


async def _members(cluster: ClusterCalls, address: str, topic: str, group: str) -> tuple[str, ...]:
    try:
        response = await cluster.call(address, GetConsumerConnections(consumer_group=group))
    except BrokerRefusal as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return ()
    live = CheckedConnections.from_json(response.body)
    return tuple(sorted(each.client_id for each in subscribers(live, topic)))


def _merged(one: TopicReader, other: TopicReader) -> TopicReader:
    """The same group on two brokers; members are connected to both."""
    return TopicReader(
        group=one.group,
        unread={**one.unread, **other.unread},
        members=tuple(sorted({*one.members, *other.members})),
    )
