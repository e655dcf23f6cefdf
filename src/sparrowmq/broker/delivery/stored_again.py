"""A stored message on its way to another queue, and where it says that it belongs."""

from collections.abc import Mapping

from sparrowmq.broker.delivery.placement import encoded, fields_of
from sparrowmq.protocol.properties import KEYS, REAL_QUEUE_ID, TAGS, UNIQUE_KEY
from sparrowmq.protocol.record import CRC_PROPERTY, CRC_PROPERTY_SIZE, Record
from sparrowmq.protocol.tags import cached_tag_code
from sparrowmq.store.messages import PutMessage


def bare_properties(record: Record) -> bytes:
    """`fields_of`, encoded, without taking them apart."""
    properties = record.properties
    at = len(properties) - CRC_PROPERTY_SIZE
    if at >= 0 and properties.startswith(CRC_PROPERTY, at):
        return properties[:at]
    return encoded(fields_of(record)) if CRC_PROPERTY in properties else properties


def real_queue_id(fields: Mapping[str, str]) -> int:
    """The queue a message that lies aside belongs to, -1 if it does not say."""
    text = fields.get(REAL_QUEUE_ID, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def stored_again(
    record: Record,
    topic: str,
    queue_id: int,
    fields: Mapping[str, str],
    properties: bytes | None = None,
) -> PutMessage:
    """A stored message on its way to another queue: the same but for its properties.

    `properties` are the fields encoded, where the caller has them already.
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
        encoded(fields) if properties is None else properties,
        cached_tag_code(fields.get(TAGS)),
        fields.get(UNIQUE_KEY, ""),
        fields.get(KEYS, ""),
    )
