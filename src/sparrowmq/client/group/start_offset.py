"""Where a newly assigned queue starts."""

from sparrowmq.client.broker_calls import (
    UNKNOWN_EPOCH,
    Position,
    committed_offset,
    max_offset,
    offset_at,
)
from sparrowmq.client.client import Client
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic

HALF_HOUR_MS = 30 * 60 * 1000
_BEGINNING = Position(0, UNKNOWN_EPOCH)
"""The broker corrects it to its minimum; it is good in every epoch."""


async def start_at(
    client: Client,
    settings: MemberSettings,
    now_ms: int,
    queue: MessageQueue,
    stored: Position | None,
) -> Position:
    """Where a queue begins for a consumer that started at `now_ms`. Raises as `start_offset`."""
    if settings.starts_at_0:
        return stored if stored is not None and stored.offset >= 0 else _BEGINNING
    at_ms = settings.from_timestamp_ms
    default_ms = now_ms - HALF_HOUR_MS
    since_ms = default_ms if at_ms is None else at_ms
    start = await start_offset(client, queue, stored, settings.from_where, since_ms)
    if stored is None and start.offset > 0 and settings.begins_at_the_end:
        # Apache's brokers report nothing stored while a queue is empty. If its first message came
        # before we asked for the end, they answer 0 now.
        again = await committed_offset(client, settings.group, queue, young_is_0=True)
        return start if again is None else again
    return start


async def start_offset(
    client: Client,
    queue: MessageQueue,
    stored: Position | None,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> Position:
    """A stored offset wins, 0 counts. Without one the rule decides; retry topics are special:
    what is in them was given back by this group and must not be skipped.

    Raises what the broker calls raise: a queue whose start is not known is not started.
    """
    if stored is not None and stored.offset >= 0:
        return stored
    match where:
        case ConsumeFromWhere.LAST_OFFSET:
            return _BEGINNING if is_retry_topic(queue.topic) else await max_offset(client, queue)
        case ConsumeFromWhere.FIRST_OFFSET:
            return _BEGINNING
        case ConsumeFromWhere.TIMESTAMP:
            if is_retry_topic(queue.topic):
                return await max_offset(client, queue)
            return await offset_at(client, queue, timestamp_ms)
