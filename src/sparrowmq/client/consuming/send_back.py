"""Sending failed messages back: brokers deliver them again later, or keep them as dead letters.

A master finds a message that is sent back in its own log, so the request only names it. A slave
stores nothing. So while the master is away this sends the message itself, like Java's client, to
the group's retry topic on another broker, with what a master would have noted: how often it failed,
and its origin. That broker delays it by level, and moves it to the dead-letter queue after too many
attempts.
"""

import logging

from sparrowmq.client.broker_calls import call, find_broker
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.handler_calls import DEAD_LETTER
from sparrowmq.client.errors import ClientError, NoRoute, counted
from sparrowmq.client.route_table import publish_queues
from sparrowmq.net.errors import NetError
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.headers.send import SendBack, SendMessageV2
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, retry_topic

_FIRST_LEVEL = 3
"""10 s, for the first retry."""


class GivingBack:
    """Sends messages of one group back to brokers, which deliver them again later, or move them to
    the dead-letter queue after too many attempts."""

    def __init__(
        self, client: ClientCore, group: str, max_reconsume_times: int | None, log: logging.Logger
    ) -> None:
        """Without a limit of its own the group's setting at the broker counts."""
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._log = log

    async def give_back(self, message: MessageExt, delay_level: int, reason: str) -> bool:
        """Send a message back. Returns whether the broker has it now. `reason` is for the log."""
        header = SendBack(
            offset=message.log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.original_topic,
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
        )
        try:
            broker = await find_broker(self._client, message.topic, message.broker_name)
            if broker.is_master:
                await call(self._client, broker.address, header)
            else:
                await self._send_elsewhere(message, delay_level)
        except (ClientError, NetError) as error:
            self._log.warning("message %s not given back: %s", message.msg_id, error)
            return False
        limit = self._max_reconsume_times
        if delay_level == DEAD_LETTER or (limit is not None and message.reconsume_times >= limit):
            # Where the group's limit counts it is the broker that logs this.
            self._log.warning(
                "message %s of topic %s goes to the dead-letter queue of group %s after %s: %s",
                message.msg_id,
                message.original_topic,
                self._group,
                counted(message.reconsume_times + 1, "attempt"),
                reason,
            )
        return True

    async def _send_elsewhere(self, message: MessageExt, delay_level: int) -> None:
        """Send it to another broker: the master is away, and its slave stores nothing."""
        times = self._max_reconsume_times
        if delay_level == DEAD_LETTER:
            times = message.reconsume_times
        await _send_to_retry_topic(self._client, self._group, message, delay_level, times)


async def _send_to_retry_topic(
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
