"""How far consumer groups are: per queue, and summed up."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeAlias

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, all_at_once, while_it_answers
from sparrowmq.admin.errors import BrokerRefusal, NoBrokerAnswers
from sparrowmq.admin.groups import find_group
from sparrowmq.admin.members import Connected, connected, with_details
from sparrowmq.admin.topics import topic_stats
from sparrowmq.admin.values import BrokerFailure, time_of
from sparrowmq.client.broker_calls import UNKNOWN_EPOCH
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.offsets import OffsetFound, QueryConsumerOffset
from sparrowmq.protocol.headers.statistics import GetConsumeStats
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic
from sparrowmq.protocol.offsets_body import ConsumeStats
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
    """How far a group is on the brokers that answered; the others are in `errors`."""

    group: str
    queues: tuple[QueueLag, ...]
    consumed_per_s: float
    """Messages per second in the last minute."""
    errors: tuple[BrokerFailure, ...] = ()

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
        return found or await broker_lag(cluster, address, group, topic)

    answers = await cluster.ask_each(online.addresses, ask)
    by_place = [*answers.by_broker.values()]
    errors = {each.broker: each for each in answers.errors}
    if topic is None:  # brokers name those only in which the group has progress with them
        more = await _lag_without_progress(cluster, group, online, answers)
        by_place += more.by_broker.values()
        errors |= {each.broker: each for each in more.errors}
    held: dict[MessageQueue, str] = {}
    if owners:
        for member in await with_details(cluster, group, online):
            held |= dict.fromkeys(member.queues or (), member.client_id)
    found = [each for queues, _ in by_place for each in queues]
    return GroupLag(
        group=group,
        queues=tuple(
            replace(each, owner=held.get(each.queue))
            for each in sorted(found, key=lambda each: each.queue)
        ),
        consumed_per_s=sum(rate for _, rate in by_place),
        errors=tuple(errors.values()),
    )


async def _lag_without_progress(
    cluster: ClusterCalls, group: str, online: Connected, known: Answers[BrokerLag]
) -> Answers[BrokerLag]:
    """The group's topics on the brokers on which it has no progress in them, such as one that a
    topic was spread to: their messages are all unread."""
    listed = {
        name: {each.queue.topic for each in found} for name, (found, _) in known.by_broker.items()
    }
    topics = set().union(online.awaited_topics, *listed.values())
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
    cluster: ClusterCalls, address: str, group: str, topic: str | None
) -> BrokerLag:
    """A group's queues on one broker, and how many messages it consumes per second."""
    header = GetConsumeStats(consumer_group=group, topic=topic)
    stats = ConsumeStats.from_json((await cluster.call(address, header)).body)
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
