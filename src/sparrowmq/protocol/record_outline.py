"""Outlines: what queues and index need of a record, read from many records in a row.

A slave and a start that scans the log look at every record, and need neither its body nor most of
its head. In a slave, outlines and their dispatch take half the time that whole records took: 3.3
instead of 7.0 µs for one of 300 bytes, including everything else that an append costs.
"""

import msgspec

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.record import CRC_BACKWARDS, Record
from sparrowmq.protocol.record_layout import (
    CRC_PROPERTY_SIZE,
    HEAD_SIZE,
    HOSTS_V6,
    MAGIC_V1,
    head_of,
)
from sparrowmq.protocol.sys_flag import TRANSACTION_PREPARED

_unpack = head_of(
    *("size", "magic", "queue_id", "queue_offset", "log_offset", "sys_flag"),
    *("store_timestamp", "body_size"),
).unpack_from


class RecordOutline(msgspec.Struct, frozen=True, gc=False):
    """One checked record. Properties are the raw bytes; the CRC of the record may be missing."""

    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    properties: bytes
    is_delivered: bool
    """See `Record.is_delivered`."""

    @staticmethod
    def of(record: Record) -> "RecordOutline":
        """The outline of a fully decoded record."""
        return RecordOutline(
            record.log_offset,
            record.size,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.store_timestamp,
            record.properties,
            record.is_delivered,
        )


def outline_run(data: bytes, at: int, log_offset: int, limit: int) -> list[RecordOutline]:
    """The records in a row from `at` on, the first of which lies at `log_offset`.

    The run ends at log offset `limit`, or at the first record that is not an ordinary one: it is
    incomplete, damaged or a blank, has IPv6 hosts, a long topic or no whole-record CRC.
    `check_record` finds out what it is.

    One loop without calls: it runs for every record that a slave copies or a start scans. The CRC
    of the whole record covers the body and the body's own CRC, which is not checked a second time.
    """
    found: list[RecordOutline] = []
    view, available = memoryview(data), len(data)
    topic, topic_bytes = "", b""
    while available - at >= HEAD_SIZE:
        size, magic, queue_id, queue_offset, own_offset, sys_flag, stored_ms, body_size = _unpack(
            data, at
        )
        end, crc_at = at + size, at + size - CRC_PROPERTY_SIZE
        topic_at = at + HEAD_SIZE + body_size + 1
        if (
            magic != MAGIC_V1
            or sys_flag & HOSTS_V6
            or own_offset != log_offset
            or log_offset + size > limit
            or end > available
            or body_size < 0
            or topic_at > crc_at
        ):
            break
        properties_at = topic_at + data[topic_at - 1] + 2
        size_at = properties_at - 2
        if properties_at > crc_at or end - properties_at != data[size_at] << 8 | data[size_at + 1]:
            break
        crc = crc32(view[at:crc_at]) & 0x7FFFFFFF
        if not data.startswith((CRC_BACKWARDS % crc)[::-1], crc_at):
            break
        if data[topic_at:size_at] != topic_bytes:
            topic_bytes = data[topic_at:size_at]
            try:
                topic = topic_bytes.decode()
            except UnicodeDecodeError:
                break
        found.append(
            RecordOutline(
                log_offset,
                size,
                topic,
                queue_id,
                queue_offset,
                stored_ms,
                data[properties_at:crc_at],
                not sys_flag & TRANSACTION_PREPARED,
            )
        )
        at, log_offset = end, log_offset + size
    return found
