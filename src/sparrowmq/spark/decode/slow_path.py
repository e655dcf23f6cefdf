"""One record at a time: IPv6, long topics, compressed bodies, inner batches, odd properties.

The slow path of `Decoder`. It agrees with `protocol.message_ext` (tests compare the two), but
imports nothing that an executor may lack.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

from sparrowmq.protocol import properties as names
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.compression import CompressionType, decompress
from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.hosts import decode_host, format_address
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.properties import decode_properties
from sparrowmq.protocol.record_layout import (
    HEADS,
    HOSTS_V6,
    MIN_RECORD_SIZE,
    SYS_FLAG,
    SYS_FLAG_AT,
    TOPIC_LENGTH_SIZES,
)
from sparrowmq.protocol.sys_flag import COMPRESSED
from sparrowmq.spark.decode.record_heads import WRAPPED
from sparrowmq.spark.errors import Damaged, RocketMQError

_MAX_MS = (2**63 - 1) // 1000


@dataclass(frozen=True, slots=True)
class SlowRecord:
    """One record with its parts cut out but not decoded."""

    queue_id: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    body: bytes
    topic: str
    properties: bytes


def messages_at(data: bytes, at: int, *, check_crc: bool = False) -> Iterator[SlowRecord]:
    """The message of the record at `at`, or all of an inner batch.

    Raises Damaged for bytes that are not a record, RocketMQError where a library is missing.
    """
    record = _record_at(data, at, check_crc)
    if record.sys_flag & WRAPPED != WRAPPED:
        yield record
        return
    try:
        batch = decode_batch(plain_body(record))
    except BodyError as error:
        raise Damaged(at, str(error)) from error
    for position, (_, body, properties) in enumerate(batch):
        yield replace(
            record,
            body=body,
            properties=properties,
            queue_offset=record.queue_offset + position,
            sys_flag=record.sys_flag & ~COMPRESSED,
        )


def row_of(record: SlowRecord, broker_name: str, at: int) -> dict[str, Any]:
    """The columns of one message by name; times in microseconds."""
    properties = decode_properties(record.properties)
    try:
        body = plain_body(record)
    except BodyError as error:
        raise Damaged(at, str(error)) from error
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": properties.get(names.UNIQUE_KEY)
        or offset_id(record.store_host, record.log_offset),
        "tags": properties.get(names.TAGS),
        "keys": properties.get(names.KEYS, "").split(),
        "body": body,
        "properties": list(properties.items()),
        "bornTimestamp": microseconds(record.born_timestamp),
        "storeTimestamp": microseconds(record.store_timestamp),
        "bornHost": format_address(decode_host(record.born_host)),
        "reconsumeTimes": record.reconsume_times,
        "sysFlag": record.sys_flag,
    }


def microseconds(ms: int) -> int:
    """Milliseconds in Spark's unit; absurd times are clipped to its range."""
    return max(-_MAX_MS, min(ms, _MAX_MS)) * 1000


def plain_body(record: SlowRecord) -> bytes:
    """The body as it was sent. Raises BodyError, and RocketMQError without the library for it."""
    if not record.sys_flag & COMPRESSED:
        return record.body
    kind = CompressionType.of(record.sys_flag)
    try:
        return decompress(record.body, kind)
    except ImportError as error:
        library = "zstandard" if kind is CompressionType.ZSTD else "lz4"
        raise RocketMQError(
            f"topic {record.topic} has bodies compressed with {kind.name.lower()}, and this Python"
            f" has no module for it: install {library} on every executor (pip install {library})"
        ) from error


def _record_at(data: bytes, at: int, check_crc: bool) -> SlowRecord:
    head, fields = _head_at(data, at)
    size, magic, body_size = fields[0], fields[1], fields[14]
    length_size = TOPIC_LENGTH_SIZES.get(magic)
    if length_size is None:
        raise Damaged(at, f"magic 0x{magic:08X}")
    end = at + size
    body_at = at + head.size
    topic_at = body_at + body_size + length_size
    if body_size < 0 or topic_at > end:
        raise Damaged(at, f"body of {body_size} bytes in a record of {size}")
    topic_size = int.from_bytes(data[topic_at - length_size : topic_at], "big")
    properties_at = topic_at + topic_size + 2
    if properties_at > end:
        raise Damaged(at, f"topic reaches beyond the record's {size} bytes")
    parts_end = properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big")
    if parts_end != end:
        raise Damaged(at, f"its parts fill {parts_end - at} bytes of {size}")
    body = data[body_at : body_at + body_size]
    if check_crc and crc32(body) & 0x7FFFFFFF != fields[2]:
        raise Damaged(at, f"body CRC {crc32(body) & 0x7FFFFFFF:08X}, {fields[2]:08X} recorded")
    try:
        topic = data[topic_at : properties_at - 2].decode()
    except UnicodeDecodeError as error:
        raise Damaged(at, "its topic is not UTF-8") from error
    return SlowRecord(
        queue_id=fields[3],
        queue_offset=fields[5],
        log_offset=fields[6],
        sys_flag=fields[7],
        born_timestamp=fields[8],
        born_host=fields[9],
        store_timestamp=fields[10],
        store_host=fields[11],
        reconsume_times=fields[12],
        body=body,
        topic=topic,
        properties=data[properties_at:end],
    )


def _head_at(data: bytes, at: int) -> tuple[Struct, tuple[Any, ...]]:
    available = len(data) - at
    if available < MIN_RECORD_SIZE:
        raise Damaged(at, f"{available} bytes, at least {MIN_RECORD_SIZE} needed")
    sys_flag: int = SYS_FLAG.unpack_from(data, at + SYS_FLAG_AT)[0]
    head = HEADS[sys_flag & HOSTS_V6]
    if available < head.size + 3:
        raise Damaged(at, f"{available} bytes, at least {head.size + 3} needed")
    fields = head.unpack_from(data, at)
    if not MIN_RECORD_SIZE <= fields[0] <= available:
        raise Damaged(at, f"total size {fields[0]}, {available} bytes available")
    return head, fields
