"""Messages of a topic by the time they were stored: counting them, and reading some or all.

    search       offset of the first message stored at `since`, and at `until`, in every queue
    read         the first or the last of each queue, merged by time: exact, whatever the limit

Nothing is scanned to find a time, so a query over a week costs as much as one over a minute.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, addresses_of, all_at_once
from sparrowmq.admin.errors import NotFound, NotReadable
from sparrowmq.admin.messages import pull_part
from sparrowmq.admin.offsets import offset_at_time, queue_ends
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.argument_checks import check_whole, to_ms
from sparrowmq.clock import date_of, utc_text
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import check_topic
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.route import TopicRoute

MOST_IN_RANGE = 10_000
"""The most messages that one query may return: they are held in memory."""

_PAGE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRange:
    """Messages stored in a time range, ordered by time."""

    messages: tuple[MessageExt, ...]
    total: int
    """How many messages the range has, by offsets."""
    errors: tuple[BrokerFailure, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether there are more than were requested."""
        return self.total > len(self.messages)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a queue, by offsets; `times` are milliseconds, the second one not included."""

    queue: MessageQueue
    address: str
    low: int
    high: int
    times: tuple[int | None, int | None] = (None, None)

    @property
    def size(self) -> int:
        """Messages in it."""
        return max(0, self.high - self.low)

    def holds(self, message: MessageExt) -> bool:
        """Whether a message was stored in this time range. Brokers before 5.2 find the offset
        nearest to a time, which may be off by one."""
        since, until = self.times
        stored = message.store_timestamp
        return (since is None or stored >= since) and (until is None or stored < until)


@dataclass(frozen=True, slots=True)
class Spans:
    """The parts of all queues, and the brokers that did not report theirs."""

    items: tuple[Span, ...]
    errors: tuple[BrokerFailure, ...]

    @property
    def total(self) -> int:
        """Messages in all of them."""
        return sum(each.size for each in self.items)


def range_ms(
    since: datetime | int | None, until: datetime | int | None
) -> tuple[int | None, int | None]:
    """Both ends in milliseconds. Raises ValueError for an empty range."""
    begin = None if since is None else to_ms("since", since)
    end = None if until is None else to_ms("until", until)
    if begin is not None and end is not None and begin >= end:
        first, last = utc_text(date_of(begin)), utc_text(date_of(end))
        raise ValueError(f"since ({first}) is not before until ({last})")
    return begin, end


def check_readable(topic: str, route: TopicRoute) -> None:
    """Raises NotReadable if a broker's permission forbids reading a topic, as it does for dead
    letters on Apache's brokers before 5.0."""
    shut = [each.broker_name for each in route.queue_datas if not is_readable(each.perm)]
    if shut:
        raise NotReadable(topic, shut)


async def spans(
    cluster: ClusterCalls,
    topic: str,
    times: tuple[int | None, int | None],
    *,
    queue: MessageQueue | None = None,
) -> Spans:
    """Which part of a topic's queues, or of one queue, a time range covers. Raises NotFound,
    NotReadable."""
    route = await cluster.route(check_topic(topic))
    check_readable(topic, route)
    counts = {each.broker_name: each.read_queue_nums for each in route.queue_datas}
    wanted = _wanted_queues(topic, counts, queue)
    addresses = addresses_of(route.broker_datas)
    targets = {name: addresses[name] for name in sorted(wanted) if name in addresses}

    async def ask(name: str, address: str) -> list[Span]:
        asks = {
            each: partial(_span, cluster, address, each, times)
            for each in (MessageQueue(topic, name, number) for number in wanted[name])
        }
        return list((await all_at_once(asks)).values())

    answers = await cluster.ask_each(targets, ask)
    found = (each for held in answers.by_broker.values() for each in held)
    return Spans(tuple(sorted(found, key=lambda each: each.queue)), answers.errors)


def _wanted_queues(
    topic: str, counts: dict[str, int], queue: MessageQueue | None
) -> dict[str, Sequence[int]]:
    if queue is None:
        return {name: range(count) for name, count in counts.items()}
    if queue.queue_id not in range(counts.get(queue.broker_name, 0)):
        known = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items()))
        raise NotFound("queue", queue.place, f"queues that can be read of topic {topic}: {known}")
    return {queue.broker_name: (queue.queue_id,)}


async def _span(
    cluster: ClusterCalls, address: str, queue: MessageQueue, times: tuple[int | None, int | None]
) -> Span:
    low, high = await queue_ends(cluster, address, queue)
    since, until = times
    if since is not None and low < high:
        found = await offset_at_time(cluster, address, queue, since)
        low = min(high, max(low, found))
    if until is not None and low < high:
        # Brokers before 5.2 give the last message for a time past it: one more, and look.
        found = await offset_at_time(cluster, address, queue, until)
        high = max(low, min(high, found + 1))
    span = Span(queue, address, low, high, times)
    return await _trimmed(cluster, span)


async def _trimmed(cluster: ClusterCalls, span: Span) -> Span:
    """Cut off the message at each end that was stored outside the time range."""
    since, until = span.times
    low, high = span.low, span.high
    if since is not None and low < high and not await _is_inside(cluster, span, low):
        low += 1
    if until is not None and low < high and not await _is_inside(cluster, span, high - 1):
        high -= 1
    return Span(span.queue, span.address, low, high, span.times)


async def _is_inside(cluster: ClusterCalls, span: Span, offset: int) -> bool:
    part = await pull_part(cluster, span.address, span.queue, offset, 1)
    found = [each for each in part.messages if each.queue_offset == offset]
    return not found or span.holds(found[0])


async def read_range(
    cluster: ClusterCalls,
    topic: str,
    *,
    since: datetime | int | None,
    until: datetime | int | None,
    queue: MessageQueue | None,
    newest: bool,
    limit: int,
) -> MessageRange:
    """The first messages of a time range, or the last. Raises ValueError, NotFound, NotReadable."""
    check_whole("limit", limit, 1, MOST_IN_RANGE)
    found = await spans(cluster, topic, range_ms(since, until), queue=queue)
    asks = {each.queue: partial(_read_span, cluster, each, newest, limit) for each in found.items}
    parts = await all_at_once(asks)
    merged = sorted(
        (message for part in parts.values() for message in part),
        key=lambda each: (each.store_timestamp, each.queue, each.queue_offset),
    )
    kept = merged[-limit:] if newest else merged[:limit]
    return MessageRange(messages=tuple(kept), total=found.total, errors=found.errors)


async def _read_span(
    cluster: ClusterCalls, span: Span, newest: bool, limit: int
) -> list[MessageExt]:
    low = max(span.low, span.high - limit) if newest else span.low
    high = span.high if newest else min(span.high, span.low + limit)
    part = Span(span.queue, span.address, low, high, span.times)
    return [message async for message in messages_of(cluster, part)]


async def messages_of(cluster: ClusterCalls, span: Span) -> AsyncIterator[MessageExt]:
    """All messages of a part of a queue, in order."""
    at = span.low
    while at < span.high:
        part = await pull_part(cluster, span.address, span.queue, at, min(_PAGE, span.high - at))
        for message in part.messages:
            if at <= message.queue_offset < span.high and span.holds(message):
                yield message
        following = part.messages[-1].queue_offset + 1 if part.messages else part.next_offset
        if following <= at:  # a queue that was shortened meanwhile
            return
        at = following
