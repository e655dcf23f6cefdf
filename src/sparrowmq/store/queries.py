"""Finding messages by something other than their queue offset: time, key, log offset."""

import struct
from collections.abc import Sequence
from enum import Enum

import msgspec

from sparrowmq.protocol.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record import Record, RecordError, check_record
from sparrowmq.protocol.record_layout import MIN_RECORD_SIZE, STORE_TIMESTAMP_BYTES, store_timestamp
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.index.key_index import KeyIndex

_SIZE = struct.Struct(">i")
_USUAL_RECORD_BYTES = 1024
"""Enough for nearly any record: read at once, instead of reading the size first."""


class Boundary(Enum):
    """Which of the messages around a time to find."""

    LOWER = "LOWER"
    """The first one stored at that time or later."""
    UPPER = "UPPER"
    """The last one stored at that time or earlier."""


class KeyFound(msgspec.Struct):
    """Where the messages with a key lie, newest first."""

    log_offsets: Sequence[int]
    is_cut: bool
    """There may be more than the limit allowed."""
    last_timestamp: int
    """Store time and log offset of the last message the index knows."""
    last_log_offset: int


def read_record(log: CommitLog, log_offset: int, *, check_crc: bool) -> tuple[Record, bytes] | None:
    """The record at a log offset, None if none starts there. May wait for the device."""
    if not log.min_offset <= log_offset < log.end:
        return None
    room = log.file_size - log_offset % log.file_size
    data = _read(log, log_offset, min(_USUAL_RECORD_BYTES, room, log.end - log_offset))
    if len(data) < _SIZE.size:
        return None
    size = _SIZE.unpack_from(data)[0]
    if not MIN_RECORD_SIZE <= size <= room:
        return None
    data = data[:size] if size <= len(data) else _read(log, log_offset, size)
    try:
        return check_record(data, 0, log_offset, check_crc=check_crc), data
    except RecordError:
        return None


def store_time(log: CommitLog, log_offset: int) -> int | None:
    """When the record at a log offset was stored, None if it is gone."""
    if not log.min_offset <= log_offset < log.end:
        return None
    head = _read(log, log_offset, STORE_TIMESTAMP_BYTES)
    return store_timestamp(head) if len(head) == STORE_TIMESTAMP_BYTES else None


def _read(log: CommitLog, log_offset: int, length: int) -> bytes:
    data = log.read(log_offset, length)
    return log.read_blocking(log_offset, length) if data is None else data


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
    """The queue offset at a store time.

    LOWER: the first message at or after it, the maximum if all are older. UPPER: the last one at or
    before it, 0 if all are newer. Where the clock was set back, one of the offsets that fit.
    """
    first = _first_after(log, queue, timestamp, inclusive=boundary is Boundary.LOWER)
    if boundary is Boundary.LOWER:
        return first
    return first - 1 if first > queue.min_offset else 0


def _first_after(log: CommitLog, queue: ConsumeQueue, timestamp: int, *, inclusive: bool) -> int:
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = probe = (low + high) // 2
        # Units without a record (blank, damaged) take the time of the next one with a record.
        while (time := _time_of(log, queue, probe)) is None and probe < high - 1:
            probe += 1
        if time is None or time > timestamp or (inclusive and time == timestamp):
            high = middle
        else:
            low = probe + 1
    return low


def _time_of(log: CommitLog, queue: ConsumeQueue, offset: int) -> int | None:
    unit = queue.unit(offset)
    return None if unit is None else store_time(log, unit[0])


def find_by_key(
    log: CommitLog,
    index: KeyIndex,
    topic: str,
    key: str,
    begin_ms: int,
    end_ms: int,
    limit: int,
) -> tuple[list[int], bool]:
    """Log offsets of messages that really have the key, newest first, and whether there are more.

    Index entries hold hashes and whole seconds, so each message found is checked.
    """
    found = index.find(topic, key, begin_ms, end_ms, limit)
    matching = []
    for log_offset in found.log_offsets:
        read = read_record(log, log_offset, check_crc=True)
        if read is not None and _has_key(read[0], topic, key, begin_ms, end_ms):
            matching.append(log_offset)
    return matching, found.is_cut


def _has_key(record: Record, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    if record.topic != topic or not begin_ms <= record.store_timestamp <= end_ms:
        return False
    properties = decode_properties(record.properties)
    keys = properties.get(KEYS, "").split(KEY_SEPARATOR)
    return key == properties.get(UNIQUE_KEY) or key in keys
