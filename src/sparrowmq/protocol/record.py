"""Encoding and decoding single commit log records; `record_layout` describes the format."""

from functools import lru_cache

import msgspec

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.properties import MAX_PROPERTIES_BYTES
from sparrowmq.protocol.record_layout import (
    BLANK,
    BLANK_MAGIC,
    CRC_ALIKE,
    CRC_END,
    CRC_HEAD,
    CRC_PROPERTY_SIZE,
    HEAD_SIZE,
    HEADS,
    HOSTS_V6,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC,
    MIN_RECORD_SIZE,
    SYS_FLAG,
    SYS_FLAG_AT,
    TOPIC_LENGTH_SIZES,
)
from sparrowmq.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED

_pack_v4 = HEADS[0].pack
CRC_BACKWARDS = b"\x02%010d" + CRC_HEAD[::-1]
"""The digits come least significant first: the property is formatted backwards and reversed."""


class RecordError(BodyError):
    """Bytes that are not a valid record; it starts at `position`, `reason` says what is wrong."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"no valid record at {position}: {reason}")
        self.position = position
        self.reason = reason


class Record(msgspec.Struct, frozen=True, gc=False):
    """One decoded record. Hosts are address and port as stored; properties are the raw bytes."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes

    @property
    def is_delivered(self) -> bool:
        """False for prepared and rolled-back records of old stores, which get no queue unit."""
        # both have this bit: prepared is 0x4, rolled back 0xC
        return not self.sys_flag & TRANSACTION_PREPARED


def body_crc(body: bytes | memoryview) -> int:
    """RocketMQ's CRC of a body: CRC32 without its highest bit."""
    return crc32(body) & 0x7FFFFFFF


@lru_cache(maxsize=16_384)
def topic_part(topic: str) -> bytes:
    """A topic's length and bytes as a record stores them; v2 if longer than 127 bytes."""
    name = topic.encode()
    if len(name) > MAX_V1_TOPIC:
        return len(name).to_bytes(2, "big") + name
    return bytes((len(name),)) + name


def encode_record(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    log_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    record_crc: bool = False,
) -> bytes:
    """Pack one record. `topic` is `topic_part(name)`; the hosts' lengths decide the IPv6 bits.

    With `record_crc` the properties must not contain `__CRC32#` yet; it is left out where it
    would exceed RocketMQ's 32,767 bytes of properties.
    """
    if record_crc and len(properties) < MAX_PROPERTIES_BYTES - CRC_PROPERTY_SIZE:
        if properties and properties[-1] != 2:
            properties += b"\x02"
        properties_size = len(properties) + CRC_PROPERTY_SIZE
    else:
        record_crc = False
        properties_size = len(properties)
    pack = _pack_v4
    head_size = HEAD_SIZE
    if len(born_host) != 8 or len(store_host) != 8:
        sys_flag = with_host_bits(sys_flag, born_host, store_host)
        head = HEADS[sys_flag & HOSTS_V6]
        pack = head.pack
        head_size = head.size
    elif sys_flag & HOSTS_V6:
        sys_flag &= ~HOSTS_V6
    record = b"".join(
        (
            pack(
                head_size + len(body) + len(topic) + 2 + properties_size,
                MAGIC_V1 if len(topic) <= 128 else MAGIC_V2,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                log_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                len(body),
            ),
            body,
            topic,
            properties_size.to_bytes(2, "big"),
            properties,
        )
    )
    if record_crc:
        return record + (CRC_BACKWARDS % (crc32(record) & 0x7FFFFFFF))[::-1]
    return record


def with_host_bits(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """The flag with the IPv6 bits for the hosts' lengths. Raises ValueError for other lengths."""
    for host in (born_host, store_host):
        if len(host) not in (8, 20):
            raise ValueError(f"a host of {len(host)} bytes, must be 8 (IPv4) or 20 (IPv6)")
    bits = BORN_HOST_V6 if len(born_host) == 20 else 0
    return sys_flag & ~HOSTS_V6 | bits | (STORE_HOST_V6 if len(store_host) == 20 else 0)


def encode_blank(space_left: int) -> bytes:
    """The eight bytes that end a file with `space_left` unused bytes."""
    return BLANK.pack(space_left, BLANK_MAGIC)


def decode_record(
    data: bytes | bytearray | memoryview, at: int = 0, *, check_crc: bool = True
) -> Record:
    """The record that starts at `at`; bytes after it are ignored.

    `check_crc` checks the body's CRC and, where the record carries one, the whole-record CRC.
    Raises RecordError for anything that is not a complete, consistent record.
    """
    available = len(data) - at
    if available < MIN_RECORD_SIZE:
        raise RecordError(at, f"{available} bytes, at least {MIN_RECORD_SIZE} needed")
    sys_flag: int = SYS_FLAG.unpack_from(data, at + SYS_FLAG_AT)[0]
    head = HEADS[sys_flag & HOSTS_V6]
    if available < head.size + 3:
        raise RecordError(at, f"{available} bytes, at least {head.size + 3} needed")
    fields = head.unpack_from(data, at)
    size, magic, body_size = fields[0], fields[1], fields[14]
    topic_length_size = TOPIC_LENGTH_SIZES.get(magic)
    if topic_length_size is None:
        raise RecordError(at, f"magic 0x{magic:08X}")
    if not MIN_RECORD_SIZE <= size <= available:
        raise RecordError(at, f"total size {size}, {available} bytes available")
    body_at = at + head.size
    topic_at = body_at + body_size + topic_length_size
    end = at + size
    if body_size < 0 or topic_at > end:
        raise RecordError(at, f"body of {body_size} bytes in a record of {size}")
    properties_at = (
        topic_at + int.from_bytes(data[topic_at - topic_length_size : topic_at], "big") + 2
    )
    if properties_at > end:
        raise RecordError(at, f"topic reaches beyond the record's {size} bytes")
    properties_size = int.from_bytes(data[properties_at - 2 : properties_at], "big")
    if properties_at + properties_size != end:
        raise RecordError(
            at, f"its parts fill {properties_at + properties_size - at} bytes of {size}"
        )
    body = bytes(data[body_at : body_at + body_size])
    properties = bytes(data[properties_at:end])
    if check_crc:
        _check_crcs(data, at, size, body, fields[2], properties)
    try:
        topic = str(data[topic_at : properties_at - 2], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(at, "its topic is not UTF-8") from error
    return Record(*fields[:14], body, topic, properties)  # type: ignore[call-arg]  # 14 fields


def _check_crcs(
    data: bytes | bytearray | memoryview,
    at: int,
    size: int,
    body: bytes,
    expected: int,
    properties: bytes,
) -> None:
    # Java stores 0 as the CRC of an empty body and never checks it: crc32(b"") is 0 as well.
    actual = crc32(body) & 0x7FFFFFFF
    if actual != expected:
        raise RecordError(at, f"body CRC {actual:08X}, {expected:08X} recorded")
    tail = properties[-CRC_PROPERTY_SIZE:]
    if tail[:9] == CRC_HEAD and tail[-1] == CRC_END and len(tail) == CRC_PROPERTY_SIZE:
        covered = memoryview(data)[at : at + size - CRC_PROPERTY_SIZE]
        digits = b"%010d" % (crc32(covered) & 0x7FFFFFFF)
        if digits[::-1] != tail[9:19]:
            recorded = tail[9:19].decode("ascii", "backslashreplace")
            raise RecordError(at, f"record CRC {digits[::-1].decode()}, {recorded} recorded")
    elif _almost_crc_property(tail):
        raise RecordError(at, "its whole-record CRC property is damaged")


def _almost_crc_property(tail: bytes) -> bool:
    """Whether a flipped byte hides the CRC property: a match of most of it is not a coincidence."""
    if len(tail) != CRC_PROPERTY_SIZE:
        return False
    fixed = CRC_HEAD + tail[9:19] + b"\x02"
    alike = sum(a == b for a, b in zip(tail, fixed, strict=True))
    return alike - 10 >= CRC_ALIKE


def check_record(
    data: bytes | bytearray | memoryview, at: int, log_offset: int, *, check_crc: bool = True
) -> Record:
    """`decode_record`, and the record's own offset must be `log_offset`."""
    record = decode_record(data, at, check_crc=check_crc)
    if record.log_offset != log_offset:
        raise RecordError(at, f"says it lies at {record.log_offset}, lies at {log_offset}")
    return record
