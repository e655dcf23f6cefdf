"""Delivery of a message that waited: to its real queue or, if that is gone, as a dead letter."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import (
    Placement,
    append,
    encode_fields,
    fields_of,
    with_properties,
)
from sparrowmq.broker.send_checks import size_fault
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TIMER_TOPIC,
    UNSENDABLE_TOPICS,
    dlq_topic,
    group_fault,
    is_retry_topic,
    topic_fault,
)
from sparrowmq.protocol.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQUE_KEY,
)
from sparrowmq.protocol.record import Record, decode_record
from sparrowmq.protocol.record_layout import CRC_HEAD, CRC_PROPERTY_SIZE
from sparrowmq.protocol.tags import cached_tag_code
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.errors import MessageTooLarge
from sparrowmq.store.messages import PutMessage, QueueRead


def deliver(
    broker: Broker,
    record: Record,
    fields: dict[str, str],
    added: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Store a message that is due in its real queue, with these properties added.

    `fields` are its properties. A message that cannot be delivered is reported and kept as a dead
    letter. Raises DiskFull and StoreStopped, having done nothing.
    """
    topic, queue_id = fields.get(REAL_TOPIC, ""), real_queue_id(fields)
    fault = delivery_fault(broker, topic, queue_id)
    properties = with_properties(properties_without_crc(record), fields, added)
    put = copy_to(record, topic, queue_id, fields, properties)
    if fault is None:
        fault = try_append(broker, put)
    if fault is not None:
        dead_letter(broker, put, record, fault)


def delivery_fault(broker: Broker, topic: str, queue_id: int) -> str | None:
    """Why a message cannot go to this queue; None if it can."""
    if topic in UNSENDABLE_TOPICS or topic == TIMER_TOPIC:
        return f"{topic!r} is not a topic that messages can be delivered to"
    config = broker.topics.get(topic) or _retry_topic(broker, topic)
    if config is None:
        if topic_fault(topic) is not None:
            return f"{topic[:200]!r} is not a topic that messages can be delivered to"
        return f"topic {topic} no longer exists"
    queues = max(config.write_queue_nums, config.read_queue_nums)
    if not 0 <= queue_id < queues:
        return f"topic {topic} has {queues} queues, queue {queue_id} is not among them"
    return None


def _retry_topic(broker: Broker, topic: str) -> TopicConfig | None:
    """The topic, created again if its group still exists."""
    if not is_retry_topic(topic) or topic_fault(topic) is not None:
        return None
    group = broker.groups.get(topic.removeprefix(RETRY_PREFIX))
    if group is None or group.retry_queue_nums <= 0:
        return None
    return broker.topics.get_or_create(topic, group.retry_queue_nums)


def try_append(broker: Broker, put: PutMessage) -> str | None:
    """Store a message; returns why it cannot be stored. Raises DiskFull, StoreStopped."""
    fault = size_fault(broker, len(put.body), len(put.properties))
    if fault is not None:
        return fault
    try:
        append(broker, Placement(put), broker.clock())
    except MessageTooLarge as error:
        return str(error)
    return None


# ---- dead letters


FALLBACK_GROUP = "SCHEDULE_CONSUMER"
"""Dead-letter group for messages without a consumer group."""
_DEAD_LETTER_QUEUES = 1


def dead_letter(broker: Broker, put: PutMessage, record: Record, fault: str) -> None:
    """Keep a message that cannot be delivered as a dead letter, and log it.

    Raises DiskFull, StoreStopped.
    """
    topic = put.topic
    fields = fields_of(record)
    group = _group_of(topic, fields)
    origin = {
        DLQ_ORIGIN_TOPIC: topic,
        DLQ_ORIGIN_MESSAGE_ID: fields.get(UNIQUE_KEY)
        or offset_id(record.store_host, record.log_offset),
    }
    properties = put.properties + encode_fields({n: v for n, v in origin.items() if v})
    if len(properties) > broker.config.max_properties_bytes:
        properties = properties_without_crc(
            record
        )  # with its old properties: there is no room for more
    letter = msgspec.structs.replace(
        put, topic=dead_letter_topic(broker, group), queue_id=0, properties=properties
    )
    broker.log.error(
        "message %s of topic %s cannot be delivered: %s; it is kept in %s",
        origin[DLQ_ORIGIN_MESSAGE_ID],
        topic,
        fault,
        letter.topic,
    )
    try:
        append(broker, Placement(letter), broker.clock())
    except MessageTooLarge as error:
        broker.log.error(
            "message %s cannot be stored as a dead letter either: %s; it stays at log offset %d",
            origin[DLQ_ORIGIN_MESSAGE_ID],
            error,
            record.log_offset,
        )


def _group_of(topic: str, fields: Mapping[str, str]) -> str:
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        group = topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
    else:
        group = fields.get(PRODUCER_GROUP, "")
    return FALLBACK_GROUP if group_fault(group) is not None else group


def dead_letter_topic(broker: Broker, group: str) -> str:
    """The dead-letter queue of a group; it exists when this returns."""
    topic = dlq_topic(group)
    broker.topics.get_or_create(topic, _DEAD_LETTER_QUEUES)
    return topic


# ---- copies of stored messages


def copy_to(
    record: Record,
    topic: str,
    queue_id: int,
    fields: Mapping[str, str],
    properties: bytes | None = None,
) -> PutMessage:
    """A copy of a stored message for another queue: the same except for its properties.

    `properties` are the encoded fields, if the caller already has them.
    """
    return PutMessage(
        topic,
        queue_id,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        record.body,
        encode_fields(fields) if properties is None else properties,
        cached_tag_code(fields.get(TAGS)),
        fields.get(UNIQUE_KEY, ""),
        fields.get(KEYS, ""),
    )


def properties_without_crc(record: Record) -> bytes:
    """What `fields_of` returns, but encoded, without parsing the properties."""
    properties = record.properties
    at = len(properties) - CRC_PROPERTY_SIZE
    if at >= 0 and properties.startswith(CRC_HEAD, at):
        return properties[:at]
    return encode_fields(fields_of(record)) if CRC_HEAD in properties else properties


def real_queue_id(fields: Mapping[str, str]) -> int:
    """The queue to which a waiting message belongs; -1 if it does not say."""
    text = fields.get(REAL_QUEUE_ID, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def records_of(found: QueueRead) -> Iterator[Record]:
    """The records of a read, in order."""
    data = found.chunks[0] if len(found.chunks) == 1 else b"".join(found.chunks)
    at = 0
    while at < len(data):
        record = decode_record(data, at, check_crc=False)
        at += record.size
        yield record
