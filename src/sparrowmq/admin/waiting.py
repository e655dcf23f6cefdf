"""What waits for a group: how long the oldest message has waited, and how many match its filter.

Lag counts every message that a queue has and the group has not read. With a tag filter only some of
them are delivered, and a group that matches none of a million is not behind. Consume queues keep a
hash of each message's tag, so brokers can count without reading a message (request 321); if a queue
has more than can be counted, the rest is estimated and marked.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from sparrowmq.admin.cluster_calls import MOST_AT_ONCE, ClusterCalls, all_at_once, at_once
from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.lag import GroupLag, QueueLag
from sparrowmq.admin.members import Subscription, connected
from sparrowmq.admin.messages import pull_part
from sparrowmq.protocol.broker_stats import ConsumeQueueUnits
from sparrowmq.protocol.headers.statistics import QueryConsumeQueue
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.subscription import TAG
from sparrowmq.protocol.tags import parse_tags, tag_code

MOST_COUNTED = 100_000
"""How many messages of a queue are checked one by one."""

PAGE = 1_000

Look = Callable[[QueueLag], Awaitable[QueueLag]]


async def with_waiting(cluster: ClusterCalls, lag: GroupLag) -> GroupLag:
    """The same lag, plus when the oldest waiting message of each queue was stored."""
    addresses = await cluster.readable()

    async def look(each: QueueLag) -> QueueLag:
        return replace(each, oldest_waiting=await _stored_at(cluster, addresses, each))

    return await _each_waiting(lag, look)


async def oldest_waiting(cluster: ClusterCalls, lag: GroupLag) -> datetime | None:
    """When the message that waits longest in any queue was stored; None if none waits, or if that
    is not known of a queue.

    The unread message of a queue came after the last one that was read there, so a queue whose last
    one is younger than a waiting message of another queue need not be asked.
    """
    addresses = await cluster.readable()
    left = [each for each in lag.queues if each.lag]
    oldest: datetime | None = None
    while left:
        left.sort(key=lambda each: (each.last_consumed is not None, each.last_consumed))
        now, left = left[:MOST_AT_ONCE], left[MOST_AT_ONCE:]
        asks = {each.queue: partial(_stored_at, cluster, addresses, each) for each in now}
        times = (await all_at_once(asks)).values()
        if None in times:
            return None
        oldest = min(filter(None, (oldest, *times)))
        left = [each for each in left if not each.last_consumed or each.last_consumed < oldest]
    return oldest


async def _stored_at(
    cluster: ClusterCalls, addresses: Mapping[str, str], each: QueueLag
) -> datetime | None:
    """When the message that a group reads next in a queue was stored, if it can be had."""
    at = max(each.min_offset, each.consumer_offset or 0)
    part = await pull_part(cluster, addresses[each.queue.broker_name], each.queue, at, 1)
    return part.messages[0].stored_at if part.messages else None


async def with_matching(cluster: ClusterCalls, lag: GroupLag) -> GroupLag:
    """The same lag, plus how many of the waiting messages match the group's filter; None if that is
    not known: no member is online, or the filter is not a tag filter."""
    if not lag.lag:  # whatever its filter is
        return replace(lag, queues=tuple(replace(each, matching=0) for each in lag.queues))
    online = await connected(cluster, lag.group)
    wanted = {each.topic: each for each in online.subscriptions}
    addresses = await cluster.readable()

    async def count(each: QueueLag) -> QueueLag:
        found = await _matching(
            cluster, addresses[each.queue.broker_name], each, wanted.get(each.queue.topic)
        )
        return each if found is None else replace(each, matching=found[0], is_exact=found[1])

    return await _each_waiting(lag, count)


async def _each_waiting(lag: GroupLag, look: Look) -> GroupLag:
    """Ask about queues in which messages wait. What cannot be fetched stays unknown."""
    results = await at_once([partial(look, each) for each in lag.queues if each.lag])
    found = {each.queue: each for each in results if not isinstance(each, AdminError)}
    queues = tuple(
        found.get(each.queue, each) if each.lag else replace(each, matching=0)
        for each in lag.queues
    )
    return replace(lag, queues=queues)


async def _matching(
    cluster: ClusterCalls, address: str, each: QueueLag, wanted: Subscription | None
) -> tuple[int, bool] | None:
    """How many match, and whether all were checked."""
    if is_retry_topic(each.queue.topic) or (wanted is not None and wanted.expression == "*"):
        return each.lag, True
    if wanted is None or wanted.kind != TAG:
        return None
    codes = {tag_code(tag) for tag in parse_tags(wanted.expression)}
    begin = max(each.min_offset, each.consumer_offset or 0)
    end = min(each.broker_offset, begin + MOST_COUNTED)
    matching, at = 0, begin
    while at < end:
        page = await _units(cluster, address, each, at, min(PAGE, end - at))
        if not page:
            break
        matching += sum(code in codes for code in page)
        at += len(page)
    looked_at = at - begin
    if looked_at == each.lag:
        return matching, True
    return (round(matching * each.lag / looked_at), False) if looked_at else None


async def _units(
    cluster: ClusterCalls, address: str, each: QueueLag, offset: int, count: int
) -> list[int]:
    """Hashes of the tags of messages from an offset on."""
    header = QueryConsumeQueue(
        topic=each.queue.topic, queue_id=each.queue.queue_id, index=offset, count=count
    )
    response = await cluster.call(address, header)
    units = ConsumeQueueUnits.from_json(response.body).queue_data
    return [unit.tags_code for unit in units[:count]]
