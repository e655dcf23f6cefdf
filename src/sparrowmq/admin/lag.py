"""How far consumer groups are: per queue, and summed up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeAlias

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, all_at_once, while_it_answers
from sparrowmq.admin.errors import BrokerRefusal, NoBrokerAnswers
from sparrowmq.admin.groups import find_group, topics_of_group
from sparrowmq.admin.members import Connected, connected, with_details
from sparrowmq.admin.topics import topic_stats
from sparrowmq.admin.values import BrokerFailure, time_of
from sparrowmq.client.broker_calls import UNKNOWN_EPOCH
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.offsets import OffsetFound, QueryConsumerOffset
from sparrowmq.protocol.headers.statistics import GetConsumeStats
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic
from sparrowmq.protocol.offsets_body import ConsumeStats, OffsetPair
from sparrowmq.protocol.perm import is_readable


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group is in one queue."""

    queue: MessageQueue
    min_offset: int
    """The offset of the oldest message that the queue still has; where many groups are looked at
    together, 0 for a queue in which no message waits."""
    broker_offset: int
    """The offset that the next message gets."""
    consumer_offset: int | None
    """The offset that the group reads next; None if it has no progress in this queue."""
    last_consumed: datetime | None
    """When the message before that one was stored."""
    owner: str | None
    """Client id of the member that holds the queue, if known."""
    oldest_waiting: datetime | None = None
    """When the message that it reads next was stored; None if none waits, or unless requested."""
    matching: int | None = None
    """How many of the waiting messages match its filter; None if that is not known."""
    is_exact: bool = True
    """Whether `matching` was counted; else it is estimated from the first 100,000."""

    @property
    def lag(self) -> int:
        """Messages that the queue has and the group has not read."""
        return max(0, self.broker_offset - max(self.min_offset, self.consumer_offset or 0))

    @property
    def is_expired(self) -> bool:
        """Whether messages were deleted before the group read them."""
        return self.consumer_offset is not None and self.consumer_offset < self.min_offset

    @property
    def is_past_end(self) -> bool:
        """Whether the group is at an offset that the queue does not have yet, as after a loss of
        messages or a reset of the topic."""
        return self.consumer_offset is not None and self.consumer_offset > self.broker_offset

    @property
    def is_out_of_range(self) -> bool:
        """Whether the group is out of the queue's range, at either end."""
        return self.is_expired or self.is_past_end


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is on the brokers that answered; the others are in `errors`.

    It has the topics of any live member, and those in which it has progress. A queue in which it
    has none counts whole.
    """

    group: str
    queues: tuple[QueueLag, ...]
    consumed_per_s: float
    """Messages per second in the last minute."""
    errors: tuple[BrokerFailure, ...] = ()
    unknown: tuple[MessageQueue, ...] = ()
    """Queues of its topics on brokers that did not answer: their lag is missing in the sums."""

    @property
    def lag(self) -> int:
        """Messages that all queues have and the group has not read."""
        return sum(queue.lag for queue in self.queues)

    @property
    def by_topic(self) -> dict[str, int]:
        """The lag of each topic."""
        sums: dict[str, int] = {}
        for each in self.queues:
            sums[each.queue.topic] = sums.get(each.queue.topic, 0) + each.lag
        return sums


BrokerLag: TypeAlias = tuple[list[QueueLag], float]
"""Queues on one broker, and how many messages the group consumes per second."""

KnownProgress: TypeAlias = Mapping[str, Mapping[str, BrokerLag]]
"""What brokers said about many groups at once, by broker and group."""


async def group_lag(
    cluster: ClusterCalls, group: str, topic: str | None, *, owners: bool
) -> GroupLag:
    """Progress in one topic, or in all in which there is any. Raises NotFound."""
    online = await connected(cluster, check_group(group))
    await find_group(cluster, group, online)
    if topic is not None:
        await cluster.route(check_topic(topic))
    return await known_lag(cluster, group, topic, online, owners=owners)


async def known_lag(
    cluster: ClusterCalls,
    group: str,
    topic: str | None,
    online: Connected,
    *,
    owners: bool,
    known: KnownProgress | None = None,
) -> GroupLag:
    """Like `group_lag`, for a group and topic that are known to exist: it saves the requests that
    check this. For all topics of a group, `known` saves those to its brokers."""

    async def ask(name: str, address: str) -> BrokerLag:
        found = (known or {}).get(name, {}).get(group)
        there = online.by_broker.get(name)
        is_live = there is None or bool(there.connection_set)
        return found or await broker_lag(cluster, address, group, topic, is_live=is_live)

    answers = await cluster.ask_each(online.addresses, ask)
    by_place = [*answers.by_broker.values()]
    errors = {each.broker: each for each in answers.errors}
    # Many groups are not worth a request for each member
    is_asked = owners or (topic is None and known is None and online.may_differ)
    members = await with_details(cluster, group, online) if is_asked else []
    topics = {topic} if topic is not None else set[str]()
    if topic is None:  # brokers name those only in which the group has progress with them
        topics |= online.awaited_topics
        if online.awaited_topics:  # none of members that broadcast
            topics |= {one.topic for each in members for one in each.subscriptions or ()}
        more = await _lag_without_progress(cluster, group, online, answers, topics)
        by_place += more.by_broker.values()
        errors |= {each.broker: each for each in more.errors}
    held: dict[MessageQueue, str] = {}
    for member in members if owners else ():
        held |= dict.fromkeys(member.queues or (), member.client_id)
    found = [each for queues, _ in by_place for each in queues]
    topics |= {each.queue.topic for each in found}
    return GroupLag(
        group=group,
        queues=tuple(
            replace(each, owner=held.get(each.queue))
            for each in sorted(found, key=lambda each: each.queue)
        ),
        consumed_per_s=sum(rate for _, rate in by_place),
        errors=tuple(errors.values()),
        unknown=await _queues_on(cluster, topics, errors) if errors else (),
    )


async def _queues_on(
    cluster: ClusterCalls, topics: Collection[str], brokers: Collection[str]
) -> tuple[MessageQueue, ...]:
    """The queues of topics on brokers that did not answer."""
    routes = await all_at_once({topic: partial(cluster.find_route, topic) for topic in topics})
    found = (
        MessageQueue(topic, data.broker_name, number)
        for topic, route in routes.items()
        for data in (route.queue_datas if route else ())
        if data.broker_name in brokers and is_readable(data.perm)
        for number in range(data.read_queue_nums)
    )
    return tuple(sorted(found))


async def _lag_without_progress(
    cluster: ClusterCalls,
    group: str,
    online: Connected,
    known: Answers[BrokerLag],
    wanted: Collection[str],
) -> Answers[BrokerLag]:
    """The group's topics, and the `wanted`, on the brokers on which it has no progress in them,
    such as one that a topic was spread to: their messages are all unread."""
    listed = {
        name: {each.queue.topic for each in found} for name, (found, _) in known.by_broker.items()
    }
    topics = set(wanted).union(*listed.values())
    partly = sorted(topic for topic in topics if not all(topic in each for each in listed.values()))
    missing: dict[str, list[str]] = {}
    routes = await all_at_once({topic: partial(cluster.find_route, topic) for topic in partly})
    for topic, route in routes.items():
        for data in route.queue_datas if route else ():
            name = data.broker_name
            if is_readable(data.perm) and topic not in listed.get(name, topics):
                missing.setdefault(name, []).append(topic)

    async def ask(name: str, address: str) -> BrokerLag:
        found = await while_it_answers(
            {topic: partial(broker_lag, cluster, address, group, topic) for topic in missing[name]}
        )
        queues = [each for part, _ in found.values() for each in part]
        return queues, sum(rate for _, rate in found.values())

    try:
        return await cluster.ask_each({name: online.addresses[name] for name in missing}, ask)
    except NoBrokerAnswers as error:
        return Answers({}, tuple(error.errors))


async def broker_lag(
    cluster: ClusterCalls, address: str, group: str, topic: str | None, *, is_live: bool = True
) -> BrokerLag:
    """A group's queues on one broker, and how many messages it consumes per second: of a topic, or
    of all in which it has progress there."""
    stats = await progress_on(cluster, address, group, topic)
    if topic is None and is_live:
        # Of a live group a broker leaves out what the members do not subscribe to, and Apache's
        # what the latest heartbeat lacks
        listed = {queue.topic for queue in stats.offset_table}
        more = sorted(await topics_of_group(cluster, address, group) - listed)
        parts = await while_it_answers(
            {name: partial(progress_on, cluster, address, group, name) for name in more}
        )
        for part in parts.values():
            stats = ConsumeStats(
                offset_table={**stats.offset_table, **part.offset_table},
                consume_tps=stats.consume_tps + part.consume_tps,
            )
    topics = {queue.topic for queue in stats.offset_table}
    ranges = await all_at_once(
        {name: partial(topic_stats, cluster, address, name) for name in topics}
    )
    held = {queue: each for found in ranges.values() for queue, each in found.offset_table.items()}
    # Brokers answer 0 for no progress as well as for a group at the first message.
    doubtful = [queue for queue, pair in stats.offset_table.items() if pair.consumer_offset <= 0]
    certain = await all_at_once(
        {queue: partial(committed, cluster, address, group, queue) for queue in doubtful}
    )
    queues = [
        QueueLag(
            queue=queue,
            min_offset=held[queue].min_offset if queue in held else 0,
            broker_offset=pair.broker_offset,
            consumer_offset=certain.get(queue, pair.consumer_offset),
            last_consumed=time_of(pair.last_timestamp),
            owner=None,
        )
        for queue, pair in stats.offset_table.items()
    ]
    return queues, stats.consume_tps


async def progress_on(
    cluster: ClusterCalls, address: str, group: str, topic: str | None
) -> ConsumeStats:
    """What a broker says of a group: in a topic, subscribed to or not, or in all topics in which it
    has progress and to which the group subscribes, if it is live."""
    listed = None if topic is None else f"{topic};"
    header = GetConsumeStats(consumer_group=group, topic=topic, topic_list=listed)
    stats = ConsumeStats.from_json((await cluster.call(address, header)).body)
    if topic is None or stats.offset_table:
        return stats
    # Brokers before 5.4 answer nothing for a topic that the latest heartbeat of a live group lacks
    try:
        held = (await topic_stats(cluster, address, topic)).offset_table
    except BrokerRefusal as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return stats
    offsets = await all_at_once(
        {queue: partial(committed, cluster, address, group, queue) for queue in held}
    )
    return ConsumeStats(
        offset_table={
            queue: OffsetPair(
                broker_offset=held[queue].max_offset, consumer_offset=offset or 0, last_timestamp=0
            )
            for queue, offset in offsets.items()
        }
    )


async def committed(
    cluster: ClusterCalls, address: str, group: str, queue: MessageQueue
) -> int | None:
    """The stored offset of a group in a queue; None if there is none."""
    header = QueryConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
        only_looks=True,
        epoch=UNKNOWN_EPOCH,
    )
    try:
        response = await cluster.call(address, header)
    except BrokerRefusal as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return None
    return response.header(OffsetFound).offset
