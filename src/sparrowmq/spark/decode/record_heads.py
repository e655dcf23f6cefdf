"""Stored records as numpy arrays: where each begins, its fixed head, and where its parts lie.

Only common records are laid out here: v1, IPv4, not compressed, one message per record. `plain`
tells them from the others, which go to `slow_path`. `protocol/record_layout.py` draws the layout.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.record_layout import (
    HEAD_DTYPE,
    HEAD_SIZE,
    HOSTS_V6,
    MAGIC_V1,
    MIN_RECORD_SIZE,
)
from sparrowmq.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from sparrowmq.spark.errors import Damaged

Longs: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

WRAPPED = INNER_BATCH | NEED_UNWRAP

HEAD = np.dtype(HEAD_DTYPE)
_SLOW_BITS = COMPRESSED | HOSTS_V6
_MAGIC_BYTES = MAGIC_V1.to_bytes(4, "big")
_SCANNED_BYTES = 32 * 1024
_SCANNED_RECORD_BYTES = 512
"""Above this size, scanning a record's bytes costs more than stepping from record to record."""
_NONE = np.zeros(0, np.int64)
_unpack_size = Struct(">I").unpack_from


def record_starts(data: bytes) -> Longs:
    """Where each record begins. Raises Damaged at an impossible size."""
    known, at = starts_by_magic(data)
    starts: list[int] = []
    append = starts.append
    end = len(data)
    last = end - MIN_RECORD_SIZE
    while at <= last:
        append(at)
        size = _unpack_size(data, at)[0]
        if size < MIN_RECORD_SIZE:
            raise Damaged(at, f"total size {size}, at least {MIN_RECORD_SIZE} needed")
        at += size
    if at > end:
        raise Damaged(starts[-1], f"total size {at - starts[-1]}, {end - starts[-1]} bytes left")
    if at < end:
        raise Damaged(at, f"{end - at} bytes left, at least {MIN_RECORD_SIZE} needed")
    return np.concatenate((known, np.array(starts, np.int64)))


def starts_by_magic(data: bytes) -> tuple[Longs, int]:
    """Where the first records begin, and where to continue by following sizes.

    Looks for the magic of all records at once, in half the time that stepping from record to record
    takes when they are small. Every record returned ends where the next begins, so a magic in a
    body cannot mislead; the last one is never returned.
    """
    if len(data) < _SCANNED_BYTES or _unpack_size(data, 0)[0] > _SCANNED_RECORD_BYTES:
        return _NONE, 0
    raw = np.frombuffer(data, np.uint8)
    found = np.flatnonzero(raw[4:-3] == _MAGIC_BYTES[0])
    for place, byte in enumerate(_MAGIC_BYTES[1:], 5):
        found = found[raw[found + place] == byte]
    if not len(found) or found[0] != 0:
        return _NONE, 0
    sizes = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))[found[:-1]]
    linked = (found[:-1] + sizes == found[1:]) & (sizes >= MIN_RECORD_SIZE)
    count = len(linked) if linked.all() else int(np.argmin(linked))
    return found[:count], int(found[count])


@dataclass(frozen=True, slots=True)
class Records:
    """The plain records among `starts`, column by column."""

    data: bytes
    head: npt.NDArray[Any]
    body_at: Longs
    body_end: Longs
    topic_at: Longs
    topic_end: Longs
    properties_at: Longs
    properties_end: Longs

    def __len__(self) -> int:
        return len(self.body_at)

    def only(self, chosen: "Flags | slice") -> "Records":
        """The records of the chosen rows."""
        return Records(
            self.data,
            self.head[chosen],
            *(
                getattr(self, name)[chosen]
                for name in (
                    *("body_at", "body_end", "topic_at", "topic_end"),
                    *("properties_at", "properties_end"),
                )
            ),
        )


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Records taken apart as far as that can be done for all of them at once."""

    starts: Longs
    records: Records
    plain: Flags
    """Which records are common and consistent; of the others only the head is right, and only up to
    sysFlag."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def data(self) -> bytes:
        """The bytes that `starts` refers to."""
        return self.records.data

    @property
    def head(self) -> npt.NDArray[Any]:
        """The fixed part of each record."""
        return self.records.head

    def part(self, first: int, last: int) -> "LaidOut":
        """The records from `first` up to, but not including, `last`."""
        if first == 0 and last == len(self.starts):
            return self
        some = slice(first, last)
        return LaidOut(self.starts[some], self.records.only(some), self.plain[some])


def _heads_at(data: bytes, starts: Longs) -> npt.NDArray[Any]:
    """The heads as if all hosts were IPv4; up to sysFlag they are right for every record."""
    # One view of 88 bytes at every position; taking from it copies each head in one go.
    window = np.ndarray((len(data) - HEAD_SIZE + 1,), f"V{HEAD_SIZE}", data, strides=(1,))
    heads: npt.NDArray[Any] = window[starts].view(HEAD)
    return heads


def lay_out(data: bytes, starts: Longs, *, check_crc: bool = False) -> LaidOut:
    """The parts of each record, and which records are plain. Needs at least one record."""
    head = _heads_at(data, starts)
    raw = np.frombuffer(data, np.uint8)
    sys_flag = head["sys_flag"]
    plain: Flags = (
        (head["magic"] == MAGIC_V1)
        & (sys_flag & _SLOW_BITS == 0)
        & (sys_flag & WRAPPED != WRAPPED)
        & (head["body_size"] >= 0)
        & (head["body_size"] <= head["size"].astype(np.int64) - MIN_RECORD_SIZE)
    )
    end = starts + head["size"]
    body_at = starts + HEAD_SIZE
    body_end = np.where(plain, body_at + head["body_size"], body_at)
    topic_at = body_end + 1
    topic_end = np.minimum(topic_at + raw[body_end], len(data) - 2)
    properties_at = topic_end + 2
    size_high = raw[topic_end].astype(np.int64)
    properties_end = properties_at + (size_high << 8 | raw[topic_end + 1])
    plain &= properties_end == end
    if check_crc:
        plain &= _with_right_crc(data, head, body_at, body_end)
    parts = (body_at, body_end, topic_at, topic_end, properties_at, properties_end)
    return LaidOut(starts, Records(data, head, *parts), plain)


def _with_right_crc(
    data: bytes, head: npt.NDArray[Any], body_at: Longs, body_end: Longs
) -> npt.NDArray[np.bool_]:
    view = memoryview(data)
    found = [
        crc32(view[start:end])
        for start, end in zip(body_at.tolist(), body_end.tolist(), strict=True)
    ]
    right: Flags = np.array(found, np.uint32) & 0x7FFFFFFF == head["body_crc"]
    return right
