"""Retries of messages whose master is away: another broker keeps them for the group.

A master finds a message that is sent back in its own log, so the request only names it. A slave
stores nothing. So, like Java's client, this sends the message itself to the group's retry topic on
another broker, with what a master would have noted: how often it failed, and its origin. The broker
delays it by level, and moves it to the dead-letter queue after too many attempts.
"""

from sparrowmq.client.broker_calls import call
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import NoRoute
from sparrowmq.client.route_table import publish_queues
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.headers.send import SendMessageV2
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, retry_topic

_FIRST_LEVEL = 3
"""10 s, for the first retry."""


async def send_to_retry_topic(
    client: ClientCore, group: str, message: MessageExt, delay_level: int, max_times: int | None
) -> None:
    """Store a message for the group on a broker that has a master. It is a dead letter at once if
    it has failed `max_times` times, or as often as the group's setting says. Raises
    NoRoute, BrokerRefused, NetError."""
    topic = retry_topic(group)
    route = await client.route_table.fetch(topic)
    queues = publish_queues(topic, route) if route is not None else []
    if not queues:
        raise NoRoute(topic, f"no broker with a master can keep messages for group {group}")
    queue = client.rng.choice(queues)
    address = client.route_table.master(queue.broker_name)
    if address is None:
        raise NoRoute(topic, f"broker {queue.broker_name} has no master now")
    times = message.reconsume_times + 1
    header = SendMessageV2(
        producer_group=group,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=1,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=names.format_properties(_noted(message, times, delay_level, max_times)),
        reconsume_times=times,
        max_reconsume_times=max_times,
    )
    await call(client, address, header, message.body)


def _noted(
    message: MessageExt, times: int, delay_level: int, max_times: int | None
) -> dict[str, str]:
    kept = {
        name: text
        for name, text in message.properties.items()
        if name not in (names.TRANSACTION_PREPARED, names.MAX_RECONSUME_TIMES)
    }
    level = delay_level if delay_level > 0 else _FIRST_LEVEL + message.reconsume_times
    limit = {} if max_times is None else {names.MAX_RECONSUME_TIMES: str(max_times)}
    return (
        kept
        | limit
        | {
            names.RETRY_TOPIC: message.original_topic,
            names.ORIGIN_MESSAGE_ID: kept.get(names.ORIGIN_MESSAGE_ID) or message.msg_id,
            names.RECONSUME_TIME: str(times),
            names.DELAY_LEVEL: str(min(level, MAX_DELAY_LEVEL)),
        }
    )
