"""Where a newly assigned queue starts."""

from sparrowmq.client.broker_calls import max_offset, offset_at
from sparrowmq.client.client import Client
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic


async def start_offset(
    client: Client,
    queue: MessageQueue,
    stored: int | None,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> int:
    """A stored offset wins, 0 counts. Without one the rule decides; retry topics are special:
    what is in them was given back by this group and must not be skipped.

    Raises what the broker calls raise: a queue whose start is not known is not started.
    """
    if stored is not None and stored >= 0:
        return stored
    match where:
        case ConsumeFromWhere.LAST_OFFSET:
            return 0 if is_retry_topic(queue.topic) else await max_offset(client, queue)
        case ConsumeFromWhere.FIRST_OFFSET:
            return 0  # the broker corrects it to its minimum
        case ConsumeFromWhere.TIMESTAMP:
            if is_retry_topic(queue.topic):
                return await max_offset(client, queue)
            return await offset_at(client, queue, timestamp_ms)
