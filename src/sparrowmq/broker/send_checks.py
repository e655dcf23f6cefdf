"""Checks of a send: the topic (created where that is allowed), the system flag, the sizes.

The system flag comes from the client. Bits that would make a message unreadable are refused or
corrected:

    2-3  prepared or rolled back  would get no place in a queue: refused unless it is a half message
    4-5  hosts are IPv6           the broker knows better: set from the addresses that it writes
    7    inner batch              clients would take the body apart: refused, as by Apache's broker
    8-10 compression type         refused if the body is compressed and the type is unknown
    others                        kept, as by Apache's broker: readers ignore bits they do not know
"""

from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.traffic.limited_sends import Send
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.compression import CompressionType
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.send import AnySend
from sparrowmq.protocol.names import TIMER_TOPIC, UNSENDABLE_TOPICS, is_retry_topic, topic_fault
from sparrowmq.protocol.sys_flag import (
    COMPRESSED,
    INNER_BATCH,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    with_transaction_type,
)
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.errors import AppendsHeld, MessageTooLarge, StoreStopped

_UNKNOWN_COMPRESSION = 0x400
"""Set in types 4 to 7, which are undefined."""
UNUSUAL_BITS = TRANSACTION_PREPARED | INNER_BATCH | _UNKNOWN_COMPRESSION
"""A flag without any of these needs no check."""


def topic_for_send(broker: Broker, request: Request[AnySend]) -> TopicConfig:
    """The checked topic, created if its default topic allows it. Raises RequestRefused."""
    header = request.header
    if broker.send_refusal:
        # Clients try again, at another broker or here: nothing was stored.
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, broker.send_refusal)
    if not broker.replication.is_master:
        # The same code as Apache's slave: it makes clients try another broker.
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, str(broker.store.admission.refusal))
    if broker.drain.refusal and not broker.drain.passes(header.topic):
        # This code makes Java, Go and our clients try another broker; SYSTEM_BUSY does not for Go.
        raise RequestRefused(ResponseCode.NO_PERMISSION, broker.drain.refusal)
    fault = topic_fault(header.topic)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    # Timers belong to the broker as well; Apache would accept them and never deliver them
    if header.topic in UNSENDABLE_TOPICS or header.topic == TIMER_TOPIC:
        text = f"topic {header.topic} belongs to the broker, clients cannot send to it"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    return broker.topics.get(header.topic) or _create(broker, header)


def admit(broker: Broker, request: Request[AnySend], send: Send) -> Handled:
    """Handle a send to a topic that is not in `topics.checked_for_send`. Raises RequestRefused.

    A saved topic without limits is remembered there until it changes, and one with limits in
    `checked_with_limits`. If a topic is new and not saved yet, a crash could lose an acknowledged
    message, so the send waits until it is saved.
    """
    limited = broker.topics.checked_with_limits.get(request.header.topic)
    if limited is not None:
        return broker.traffic.handle(broker, request, limited, send)
    topic = topic_for_send(broker, request)
    is_saved = broker.topics.is_saved(topic.topic_name)
    if not is_saved and not request.is_oneway:
        return broker.saving.handle_when_saved(broker.topics, partial(send, broker, request, None))
    if broker.traffic.watches(topic):
        if is_saved:
            broker.topics.checked_with_limits[topic.topic_name] = topic
        return broker.traffic.handle(broker, request, topic, send)
    if is_saved:
        broker.topics.checked_for_send[topic.topic_name] = topic
    return send(broker, request, topic)


def _create(broker: Broker, header: AnySend) -> TopicConfig:
    if len(broker.topics) >= broker.config.max_topics:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"topic {header.topic} cannot be created: this broker has {len(broker.topics)} topics,"
            f" at most {broker.config.max_topics} allowed (max_topics)",
        )
    created = broker.topics.inherit(
        header.topic, header.default_topic, header.default_topic_queue_nums
    )
    if created is None and is_retry_topic(header.topic):
        created = broker.topics.get_or_create(header.topic, 1)
    if created is None:
        raise RequestRefused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic {header.topic} does not exist and broker {broker.config.broker_name} does not"
            f" create topics; create it with: sparrowmq topic create {header.topic}",
        )
    broker.log.info("created topic %s with %d queues", header.topic, created.write_queue_nums)
    return created


def checked_sys_flag(sys_flag: int, topic: str) -> int:
    """A flag with UNUSUAL_BITS as it may be stored for this topic. Raises RequestRefused.

    Half messages no longer have transaction bits at this point: placement removed them.
    """
    if sys_flag & INNER_BATCH:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"sysFlag {sys_flag:#x} says inner batch (0x80), which needs a topic with batch consume"
            " queues; send the messages one by one or as a batch (request 320)",
        )
    if sys_flag & COMPRESSED:
        try:
            CompressionType.of(sys_flag)
        except BodyError as error:
            text = f"sysFlag {sys_flag:#x}: {error}"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, text) from error
    if is_retry_topic(topic):
        # It has been delivered before: its transaction is over.
        return with_transaction_type(sys_flag, TRANSACTION_NONE)
    if sys_flag & TRANSACTION_PREPARED:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"sysFlag {sys_flag:#x} says half message (0x4) and its property TRAN_MSG does not:"
            " the transaction could never end; set TRAN_MSG to true, or leave the bit out",
        )
    return sys_flag


def check_size(broker: Broker, body_bytes: int, properties_bytes: int) -> None:
    """Raise RequestRefused for a message that exceeds the limits."""
    fault = size_fault(broker, body_bytes, properties_bytes)
    if fault is not None:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, fault)


def size_fault(broker: Broker, body_bytes: int, properties_bytes: int) -> str | None:
    """Which configured limit a message exceeds; None if it is within all of them."""
    limits = broker.config
    if body_bytes > limits.max_message_bytes:
        return f"body of {body_bytes} bytes, at most {limits.max_message_bytes} allowed"
    if properties_bytes > limits.max_properties_bytes:
        return (
            f"properties of {properties_bytes} bytes, at most {limits.max_properties_bytes} allowed"
        )
    return None


def store_refusal(error: DiskFull | StoreStopped | MessageTooLarge) -> RequestRefused:
    """The answer to a send whose message the store could not take."""
    if isinstance(error, MessageTooLarge):
        return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if isinstance(error, AppendsHeld):
        # What Apache's broker answers when it has too few in-sync replicas.
        return RequestRefused(ResponseCode.SYSTEM_ERROR, f"not stored: {error}")
    return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"not stored: {error}")
