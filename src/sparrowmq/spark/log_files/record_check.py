"""Finds whole records in the raw bytes of a log, and tells which of them are damaged."""

from collections.abc import Callable, Iterator
from operator import eq
from struct import Struct
from typing import TypeAlias

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.record_layout import (
    BLANK,
    CRC_ALIKE,
    CRC_END,
    CRC_HEAD,
    CRC_PROPERTY_SIZE,
    HEAD_SIZE,
    IPV6_MORE_BYTES,
    MAGIC_BYTES,
    MIN_RECORD_SIZE,
    TOPIC_LENGTH_SIZES,
    head_codes,
)
from sparrowmq.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6

ReadLog: TypeAlias = Callable[[int, int], bytes]
"""Reads the given number of bytes from a log offset on, fewer at the end of the file."""

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""Far above what any broker accepts: a larger size is damage."""

_HEAD = Struct(f">{head_codes('size', 'sys_flag')}")
_BODY_SIZE = Struct(f">{head_codes('body_size', 'body_size')}")
_WINDOW = 1024 * 1024


def record_fault(data: memoryview, at: int, log_offset: int) -> str | None:
    """What is wrong with the record at `at`, which has to be whole; None if nothing is wrong.

    Like `protocol.record.check_record`, without taking the record apart.
    """
    size, magic, body_crc, _, _, _, own_offset, sys_flag = _HEAD.unpack_from(data, at)
    if magic not in TOPIC_LENGTH_SIZES:
        return f"magic 0x{magic:08X}"
    if own_offset != log_offset:
        return f"it says that it lies at {own_offset}"
    body_at = at + HEAD_SIZE
    for bit in (BORN_HOST_V6, STORE_HOST_V6):
        if sys_flag & bit:
            body_at += IPV6_MORE_BYTES
    end = at + size
    if body_at > end:
        return f"total size {size}, too small for its head"
    body_end = body_at + _BODY_SIZE.unpack_from(data, body_at - 4)[0]
    length_size = TOPIC_LENGTH_SIZES[magic]
    if not body_at <= body_end <= end - length_size:
        return f"body of {body_end - body_at} bytes in a record of {size}"
    topic_at = body_end + length_size
    properties_at = topic_at + int.from_bytes(data[body_end:topic_at], "big") + 2
    if properties_at > end:
        return f"topic reaches beyond the record's {size} bytes"
    properties_size = int.from_bytes(data[properties_at - 2 : properties_at], "big")
    if properties_at + properties_size != end:
        return f"its parts fill {properties_at + properties_size - at} bytes of {size}"
    if data[end - 1] == 0 and (properties_size or data[properties_at - 3] == 0):
        return "its end was never written"  # a power cut; the body's CRC says nothing about it
    return _crc_fault(data, at, end, body_crc, body_at, body_end)


def _crc_fault(
    data: memoryview, at: int, end: int, body_crc: int, body_at: int, body_end: int
) -> str | None:
    if crc32(data[body_at:body_end]) & 0x7FFFFFFF != body_crc:
        return "the body's CRC is wrong"
    crc_at = end - CRC_PROPERTY_SIZE
    alike = sum(map(eq, data[crc_at : crc_at + len(CRC_HEAD)], CRC_HEAD))
    alike += data[end - 1] == CRC_END
    if alike < CRC_ALIKE:
        return None
    if alike <= len(CRC_HEAD):
        return "the property with its CRC is damaged"
    digits = b"%010d" % (crc32(data[at:crc_at]) & 0x7FFFFFFF)
    recorded = bytes(data[crc_at + len(CRC_HEAD) : end - 1])
    return None if digits[::-1] == recorded else "the record's CRC is wrong"


def whole_record_at(read: ReadLog, log_offset: int, file_end: int) -> bool:
    """Whether a whole, undamaged record starts at this log offset."""
    head = read(log_offset, BLANK.size)
    if len(head) < BLANK.size:
        return False
    size, magic = BLANK.unpack(head)
    if magic not in TOPIC_LENGTH_SIZES or not MIN_RECORD_SIZE <= size <= MAX_RECORD_BYTES:
        return False
    if log_offset + size > file_end:
        return False
    data = read(log_offset, size)
    return len(data) == size and record_fault(memoryview(data), 0, log_offset) is None


def next_record(read: ReadLog, begin: int, end: int, file_end: int | None = None) -> int | None:
    """Where the first whole record between `begin` and `end` starts; None if there is none.

    The record itself may extend past `end`, up to the file's end.
    """
    limit = 2**63 - 1 if file_end is None else file_end
    for found in _magics(read, begin, end):
        if whole_record_at(read, found, limit):
            return found
    return None


def _magics(read: ReadLog, begin: int, end: int) -> Iterator[int]:
    """Where a record may begin: four bytes before each magic."""
    at = begin
    while at < end:
        # Windows overlap by a size field and its magic, so that no pair is cut in two.
        data = read(at, min(_WINDOW, end - at + 4) + 4)
        for place in _places(data):
            if at + place < end:
                yield at + place
        if len(data) < 8:
            return
        at += len(data) - 7


def _places(data: bytes) -> list[int]:
    found = []
    for magic in MAGIC_BYTES:
        place = data.find(magic, 4)
        while place >= 0:
            found.append(place - 4)
            place = data.find(magic, place + 1)
    return sorted(found)
