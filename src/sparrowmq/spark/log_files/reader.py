"""Reading a range of the log: runs of whole records, and the damage between them.

Every record is checked before its row is returned: its position, its sizes, the body's CRC and, if
it has one, the CRC of the whole record. numpy checks many at once; a record that looks odd to it is
examined individually before it counts as damaged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.record_layout import (
    BLANK,
    BLANK_MAGIC,
    CRC_ALIKE,
    CRC_END,
    CRC_HEAD,
    CRC_PROPERTY_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
)
from sparrowmq.spark.decode.record_heads import Flags, LaidOut, Longs, lay_out, starts_by_magic
from sparrowmq.spark.log_files.ranges import LogRange
from sparrowmq.spark.log_files.record_check import MAX_RECORD_BYTES, next_record, record_fault

WINDOW = 8 * 1024 * 1024
"""How many bytes are read and decoded at once."""
_unpack_size = Struct(">I").unpack_from
_TAIL = np.dtype(
    [
        ("head", f"S{len(CRC_HEAD)}"),
        ("digits", "u1", CRC_PROPERTY_SIZE - len(CRC_HEAD) - 1),
        ("end", "u1"),
    ]
)
"""The last property of a record that carries its own CRC."""


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive whole records."""

    log_offset: int
    """Log offset of the first byte of the data that contains them."""
    records: LaidOut
    end: int
    """Where the last record ends in that data."""

    @property
    def starts(self) -> Longs:
        """Where each record begins in that data."""
        return self.records.starts


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes that are not records."""

    begin: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.end - self.begin} bytes from {self.begin} on: {self.reason}"


Found: TypeAlias = RecordRun | DamagedBytes


def read_range(wanted: LogRange, window: int = WINDOW) -> Iterator[Found]:
    """Everything in a range, in order. Raises LogFileError."""
    file, at = wanted.file, wanted.begin
    file_end = file.start + file.size
    length = window
    while at < wanted.end:
        data = file.read(at, min(length, file_end - at))
        records, stop = _chain(data, wanted.end - at)
        good, fault = (0, None) if records is None else _good_part(records, stop, at)
        if records is not None and good:
            end = int(records.starts[good]) if good < len(records) else stop
            yield RecordRun(at, records.part(0, good), end)
            at, length = at + end, window
            if fault is None:
                continue
        elif fault is None:
            size = _size_at(data)
            if MIN_RECORD_SIZE <= size <= min(MAX_RECORD_BYTES, file_end - at) and size > len(data):
                length = size  # a record that is larger than the window
                continue
        damage = _damage(wanted, at, fault)
        if damage is None:
            return
        yield damage
        at, length = damage.end, window


def _chain(data: bytes, limit: int) -> tuple[LaidOut | None, int]:
    """Follow the sizes from record to record, as far as they are whole and begin before `limit`.

    Returns the records, and where the last one ends.
    """
    known, at = starts_by_magic(data)
    begins_late = int(np.searchsorted(known, limit))
    if begins_late < len(known):
        known, at = known[:begins_late], int(known[begins_late])
    starts: list[int] = []
    append = starts.append
    last = min(len(data) - MIN_RECORD_SIZE, limit - 1)
    whole = len(data)
    while at <= last:
        size = _unpack_size(data, at)[0]
        if size < MIN_RECORD_SIZE or at + size > whole:
            break
        append(at)
        at += size
    all_starts = np.concatenate((known, np.array(starts, np.int64)))
    if not len(all_starts):
        return None, 0
    records = lay_out(data, all_starts)
    magic = records.head["magic"]
    strange = np.flatnonzero((magic != MAGIC_V1) & (magic != MAGIC_V2))
    if not len(strange):
        return records, at
    first = int(strange[0])
    return (records.part(0, first) if first else None), int(all_starts[first])


def _good_part(records: LaidOut, stop: int, log_offset: int) -> tuple[int, str | None]:
    """How many records from the first on are fine, and what is wrong with the next one."""
    fine = _looks_fine(records, stop, log_offset)
    view = memoryview(records.data)
    for odd in np.flatnonzero(~fine).tolist():
        at = int(records.starts[odd])
        fault = record_fault(view, at, log_offset + at)
        if fault is not None:
            return odd, fault
    return len(records), None


def _looks_fine(laid_out: LaidOut, stop: int, log_offset: int) -> Flags:
    """Which records are common ones and correct in every respect."""
    starts = laid_out.starts
    ends = np.append(starts[1:], stop)
    raw = np.frombuffer(laid_out.data, np.uint8)
    is_there = laid_out.head["log_offset"] == starts + log_offset
    fine: Flags = laid_out.plain & is_there & (raw[ends - 1] != 0)
    return fine & _right_crcs(laid_out, ends)


def _right_crcs(laid_out: LaidOut, ends: Longs) -> Flags:
    """Whether the CRC with the widest coverage is right: the record's, else the body's."""
    data, starts, records = laid_out.data, laid_out.starts, laid_out.records
    # One view of the property's size at every position; taking from it copies each in one go.
    window = np.ndarray(
        (len(data) - CRC_PROPERTY_SIZE + 1,), f"V{CRC_PROPERTY_SIZE}", data, strides=(1,)
    )
    tails = window[ends - CRC_PROPERTY_SIZE].view(_TAIL)
    own, has_own = _recorded_crcs(tails)
    recorded = np.where(has_own, own, records.head["body_crc"])
    begins = np.where(has_own, starts, records.body_at).tolist()
    stops = np.where(has_own, ends - CRC_PROPERTY_SIZE, records.body_end).tolist()
    view = memoryview(data)
    found = [crc32(view[begin:end]) for begin, end in zip(begins, stops, strict=True)]
    right: Flags = np.array(found, np.int64) & 0x7FFFFFFF == recorded
    if not has_own.all():
        right[~has_own] &= _alike(tails[~has_own]) < CRC_ALIKE
    return right


def _recorded_crcs(tails: npt.NDArray[Any]) -> tuple[Longs, Flags]:
    """The CRC recorded in each tail, and whether every byte of the tail is well-formed."""
    is_one: Flags = (tails["head"] == np.bytes_(CRC_HEAD)) & (tails["end"] == CRC_END)
    # Digit by digit, the highest last: ten passes over bytes cost less than one over long numbers.
    digits = np.ascontiguousarray(tails["digits"].T) - np.uint8(ord("0"))
    is_one &= (digits <= 9).all(axis=0)  # bytes below "0" have wrapped around
    values = np.zeros(len(tails), np.int64)
    for digit in digits[::-1]:
        values *= 10
        values += digit
    return values, is_one


def _alike(tails: npt.NDArray[Any]) -> Longs:
    """How many of the CRC property's fixed bytes are right."""
    raw = tails.view(np.uint8).reshape(-1, CRC_PROPERTY_SIZE)
    alike: Longs = (raw[:, : len(CRC_HEAD)] == np.frombuffer(CRC_HEAD, np.uint8)).sum(axis=1)
    alike += raw[:, -1] == CRC_END
    return alike


def _size_at(data: bytes) -> int:
    return int(_unpack_size(data, 0)[0]) if len(data) >= BLANK.size else 0


def _damage(wanted: LogRange, at: int, fault: str | None) -> DamagedBytes | None:
    """The damaged bytes at `at`, where no record is; None at the end of the file or the log."""
    file = wanted.file
    file_end = file.start + file.size
    size, magic = 0, 0
    head = file.read(at, BLANK.size)
    if len(head) == BLANK.size:
        size, magic = BLANK.unpack(head)
    if fault is None and magic == BLANK_MAGIC and at + size >= file_end:
        return None
    following = next_record(file.read, at + 1, wanted.end, file_end)
    if following is None and wanted.is_last and at >= wanted.sure:
        return None
    end = wanted.end if following is None else following
    return DamagedBytes(
        at, end, fault or f"total size {size} and magic 0x{magic:08X} are not those of a record"
    )
