"""Sending failed messages back: brokers deliver them again later, or keep them as dead letters.

A master finds a message that is sent back in its own log, so the request only names it. A slave
stores nothing. So while the master is away this sends the message itself, like Java's client, to
the group's retry topic on another broker, with what a master would have noted: how often it failed,
and its origin. That broker delays it by level, and moves it to the dead-letter queue after too many
attempts.

Unless the consumer has a limit of its own, only the broker knows which attempt is the last one. It
is asked for the group's limit when something is sent back, once a minute at most, so that the log
of the program that could not handle a message says that it became a dead letter, and why.
"""

import asyncio
import logging

from sparrowmq.client.broker_calls import call, find_broker
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.handler_calls import DEAD_LETTER
from sparrowmq.client.errors import ClientError, NoRoute, counted
from sparrowmq.client.route_table import publish_queues
from sparrowmq.net.errors import NetError
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import GetGroupConfig
from sparrowmq.protocol.headers.send import SendBack, SendMessageV2
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, retry_topic

_FIRST_LEVEL = 3
"""10 s, for the first retry."""
_LIMIT_KNOWN_S = 60.0
"""A group's limit may be changed; for the log it is asked for again after this time."""
_USUAL_LIMIT = SubscriptionGroupConfig(group_name="").retry_max_times


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
        self._limits = _GroupLimits(client, group)
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
            address = broker.address
            if broker.is_master:
                await call(self._client, address, header)
            else:
                address = await self._send_elsewhere(message, delay_level)
        except (ClientError, NetError) as error:
            self._log.warning("message %s not given back: %s", message.msg_id, error)
            return False
        if delay_level == DEAD_LETTER or await self._is_last(message, address):
            self._log.warning(
                "message %s of topic %s goes to the dead-letter queue of group %s after %s: %s",
                message.msg_id,
                message.original_topic,
                self._group,
                counted(message.reconsume_times + 1, "attempt"),
                reason,
            )
        return True

    async def _is_last(self, message: MessageExt, address: str) -> bool:
        """Whether the message has been delivered as often as the limit says that counts there."""
        limit = self._max_reconsume_times
        if limit is None:
            limit = await self._limits.at(address)
        return message.reconsume_times >= limit

    async def _send_elsewhere(self, message: MessageExt, delay_level: int) -> str:
        """Send it to another broker, whose address this returns: the master is away, and its slave
        stores nothing."""
        times = self._max_reconsume_times
        if delay_level == DEAD_LETTER:
            times = message.reconsume_times
        return await _send_to_retry_topic(self._client, self._group, message, delay_level, times)


class _GroupLimits:
    """How often brokers let a group try a message again."""

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        self._known: dict[str, tuple[int, float]] = {}
        """By address, and until when that counts."""

    async def at(self, address: str) -> int:
        """The limit at a broker; the usual one where it does not say."""
        now_s = asyncio.get_running_loop().time()
        limit, until_s = self._known.get(address, (_USUAL_LIMIT, now_s))
        if until_s > now_s:
            return limit
        try:
            response = await call(self._client, address, GetGroupConfig(group=self._group))
            limit = SubscriptionGroupConfig.from_json(response.body).retry_max_times
        except (ClientError, NetError, ProtocolError):  # Apache's 4.9 has no such request
            limit = _USUAL_LIMIT
        self._known[address] = limit, now_s + _LIMIT_KNOWN_S
        return limit


async def _send_to_retry_topic(
    client: ClientCore, group: str, message: MessageExt, delay_level: int, max_times: int | None
) -> str:
    """Store a message for the group on a broker that has a master, whose address this returns. It
    is a dead letter at once if it has failed `max_times` times, or as often as the group's setting
    says. Raises NoRoute, BrokerRefused, NetError."""
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
    return address


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
