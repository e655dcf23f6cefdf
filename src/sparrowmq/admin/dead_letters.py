"""Dead letters: messages that a consumer group has given up on, kept in the topic `%DLQ%group`."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from inspect import isawaitable

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, addresses_of, all_at_once
from sparrowmq.admin.errors import NotFound
from sparrowmq.admin.groups import find_group
from sparrowmq.admin.members import connected
from sparrowmq.admin.messages import find_messages, find_unique
from sparrowmq.admin.offsets import offset_at_time, queue_ends
from sparrowmq.admin.ranges import MessageRange, messages_of, range_ms, read_range, spans
from sparrowmq.admin.topics import topic_names
from sparrowmq.admin.values import BrokerFailure, time_of
from sparrowmq.client.argument_checks import to_ms
from sparrowmq.clock import utc_text
from sparrowmq.protocol.headers.offsets import GetEarliestStoreTime, TimestampFound
from sparrowmq.protocol.headers.statistics import GetTopicStats
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import DLQ_PREFIX, check_group, dlq_topic, is_dlq_topic
from sparrowmq.protocol.offsets_body import TopicStats
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC
from sparrowmq.protocol.route import TopicRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCount:
    """How many dead letters a group has on the brokers that answered; the others are in
    `errors`."""

    group: str
    messages: int
    oldest: datetime | None
    newest: datetime | None
    recent: int
    """How many were stored since the requested time."""
    unreadable: tuple[str, ...] = ()
    """Brokers whose permission forbids reading them (Apache's before 5.0)."""
    errors: tuple[BrokerFailure, ...] = ()


def origin_of(letter: MessageExt) -> str | None:
    """The topic that a dead letter came from, if known."""
    found = letter.properties
    return found.get(RETRY_TOPIC) or found.get(DLQ_ORIGIN_TOPIC) or None


# ---- looking


async def dead_letter_groups(cluster: ClusterCalls) -> list[str]:
    """Groups that have a dead-letter topic, according to the name servers alone."""
    names = await topic_names(cluster)
    return [name.removeprefix(DLQ_PREFIX) for name in names if is_dlq_topic(name)]


async def count_dead_letters(
    cluster: ClusterCalls, group: str, recent: datetime | int
) -> DeadLetterCount:
    """How many a group has, and since when. Works even if they cannot be read. Raises NotFound."""
    topic = dlq_topic(check_group(group))
    since_ms = to_ms("recent", recent)
    route = await _route(cluster, group)

    async def ask(name: str, address: str) -> tuple[int, int, list[int], list[int]]:
        response = await cluster.call(address, GetTopicStats(topic=topic))
        held = TopicStats.from_json(response.body).offset_table
        full = [queue for queue, each in held.items() if each.max_offset > each.min_offset]
        asks = {queue: partial(_edges, cluster, address, queue, since_ms) for queue in full}
        edges = (await all_at_once(asks)).values()
        count = sum(held[queue].max_offset - held[queue].min_offset for queue in full)
        newest = [held[queue].last_update_timestamp for queue in full]
        return count, sum(each for _, each in edges), [each for each, _ in edges], newest

    answers = await cluster.ask_each(addresses_of(route.broker_datas), ask)
    found = answers.by_broker.values()
    oldest = [each for _, _, times, _ in found for each in times if each > 0]
    newest = [each for _, _, _, times in found for each in times if each > 0]
    return DeadLetterCount(
        group=group,
        messages=sum(each[0] for each in found),
        recent=sum(each[1] for each in found),
        oldest=time_of(min(oldest, default=None)),
        newest=time_of(max(newest, default=None)),
        unreadable=tuple(
            sorted(each.broker_name for each in route.queue_datas if not is_readable(each.perm))
        ),
        errors=answers.errors,
    )


async def _edges(
    cluster: ClusterCalls, address: str, queue: MessageQueue, since_ms: int
) -> tuple[int, int]:
    """When the oldest message of a queue was stored, and how many were stored since a time."""
    header = GetEarliestStoreTime(topic=queue.topic, queue_id=queue.queue_id)
    oldest = (await cluster.call(address, header)).header(TimestampFound).timestamp
    low, high = await queue_ends(cluster, address, queue)
    first = await offset_at_time(cluster, address, queue, since_ms)
    return oldest, max(0, high - max(low, first))


async def _route(cluster: ClusterCalls, group: str) -> TopicRoute:
    try:
        return await cluster.route(dlq_topic(check_group(group)))
    except NotFound as error:
        await find_group(cluster, group, await connected(cluster, group))
        raise NotFound(
            "dead-letter topic", dlq_topic(group), f"group {group} has no dead letters"
        ) from error


async def read_dead_letters(
    cluster: ClusterCalls,
    group: str,
    *,
    since: datetime | int | None,
    until: datetime | int | None,
    key: str | None,
    newest: bool,
    limit: int,
) -> MessageRange:
    """Dead letters of a time range, ordered by time. Raises ValueError, NotFound, NotReadable."""
    await _route(cluster, group)
    topic = dlq_topic(group)
    if key is None:
        return await read_range(
            cluster, topic, since=since, until=until, queue=None, newest=newest, limit=limit
        )
    range_ms(since, until)
    found = await find_messages(cluster, topic, key, begin=since, end=until, limit=limit)
    total = len(found) + found.is_cut
    return MessageRange(messages=found.items[::-1], total=total, errors=found.errors)


async def select_dead_letters(
    cluster: ClusterCalls,
    group: str,
    *,
    ids: Collection[str],
    since: datetime | int | None,
    until: datetime | int | None,
) -> AsyncIterator[MessageExt]:
    """Dead letters one by one, queue by queue: those with these ids, or all in a time range.

    Raises NotFound for an id that none has, before yielding the first; and AdminError if a broker
    does not answer, since it may have more of them.
    """
    await _route(cluster, group)
    found = await spans(cluster, dlq_topic(group), range_ms(since, until))
    Answers({}, found.errors).all()
    if not ids:
        for span in found.items:
            async for letter in messages_of(cluster, span):
                yield letter
        return
    for letter in await _with_ids(cluster, group, ids):
        yield letter


async def _with_ids(cluster: ClusterCalls, group: str, ids: Collection[str]) -> list[MessageExt]:
    """The latest dead letter for each id. Raises NotFound."""
    chosen = []
    for each in dict.fromkeys(ids):
        found = await find_unique(cluster, dlq_topic(group), each, 0)
        if not found:
            hint = f"no dead letter of group {group} has that id: sparrowmq dlq show {group}"
            raise NotFound("dead letter", each, hint)
        chosen.append(max(found, key=lambda letter: letter.store_timestamp))
    return chosen


# ---- exporting


def exported(letter: MessageExt) -> str:
    """A dead letter as one line of JSON, with everything needed to send it again. A body that is
    not UTF-8 is encoded in Base64."""
    try:
        body = {"body": letter.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": b64encode(letter.body).decode("ascii")}
    value = {
        "id": letter.msg_id,
        "topic": origin_of(letter),
        "tag": letter.tags,
        "keys": list(letter.keys),
        "properties": dict(letter.properties),
        "attempts": letter.reconsume_times,
        "born": utc_text(letter.born_at),
        "died": utc_text(letter.stored_at),
        "broker": letter.broker_name,
        "queue": letter.queue_id,
        "offset": letter.queue_offset,
        **body,
    }
    return json.dumps(value, ensure_ascii=False)


async def export_dead_letters(
    cluster: ClusterCalls,
    group: str,
    write: Callable[[str], object],
    *,
    since: datetime | int | None,
    until: datetime | int | None,
) -> int:
    """Write all dead letters of a time range, one line each. Returns how many there were."""
    count = 0
    async for letter in select_dead_letters(cluster, group, ids=(), since=since, until=until):
        written = write(exported(letter))
        if isawaitable(written):
            await written
        count += 1
    return count
