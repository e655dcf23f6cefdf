"""Reading a queue: select units and fetch their records in as few reads as possible.

```
ReadPlan ─▶ read_planned ─▶ pick ─┬─ _pick_all       everything fits: most pulls
            (units, until         ├─ _pick_plain     lengths are added up, tags compared
            something is found)   └─ _pick_checked   records of another process, or a filter
```

A plan carries all that a read needs, so that it can be finished anywhere: on the loop, from memory,
or, if it has to wait for the device, in another thread (`ColdRead`). Nothing is decoded on the way
to a consumer. Records that this process did not write itself are checked first (CRC, position,
topic, queue, offset): a damaged one is reported and left out.
"""

from collections.abc import Callable, Container, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from operator import add
from struct import Struct
from typing import Protocol, TypeAlias

import msgspec

from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.record import Record, RecordError, decode_record
from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE, UNIT, ConsumeQueue
from sparrowmq.store.layout import log_path
from sparrowmq.store.messages import QueueRead, ReadStatus

_UNITS_AT_ONCE = 256
_LARGEST_READ = 1024 * 1024
_UNITS_AHEAD = 64 * 1024
"""Bytes of a queue to read ahead of a cold read: 3,276 units."""
_MOST_BETWEEN = 8
"""Reading ahead does not pay where fewer than one byte in this many belongs to the queue."""

AcceptsRecord: TypeAlias = Callable[[bytes | memoryview], bool]


class Source(Protocol):
    """Where units and records come from. None means that the device would have to be waited for."""

    def units(self, offset: int, count: int) -> bytes | None:
        """Up to `count` units; fewer at the end of a file, none if it is missing."""
        ...

    def log(self, log_offset: int, length: int) -> bytes | None:
        """Bytes of the log; fewer than requested if some are gone."""
        ...


class ReadPlan(msgspec.Struct, gc=False):
    """One read of a queue, with everything it needs to be finished in another thread."""

    topic: str
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    max_count: int
    max_bytes: int
    accepts_tag: Container[int] | None
    accepts_record: AcceptsRecord | None
    min_log_offset: int
    own_from: int
    """Records from here on were written by this process and need no check."""
    scan_units: int
    gap_bytes: int
    file_size: int
    units_per_file: int
    damaged: Callable[[int, int, str], None]
    """Called with log offset, size and reason."""


class Picked(msgspec.Struct, gc=False):
    """What was selected from a run of units."""

    scanned: int
    """How many units were examined."""
    count: int = 0
    size: int = 0
    chunks: Sequence[bytes | memoryview] = ()
    any_gone: bool = False
    """Some record was gone or damaged."""


def read_planned(plan: ReadPlan, source: Source) -> QueueRead | None:
    """Finish the plan; None if the source would have to wait for the device."""
    is_filtered = plan.accepts_tag is not None or plan.accepts_record is not None
    step = _UNITS_AT_ONCE if is_filtered else plan.max_count
    end = min(plan.max_offset, plan.offset + max(plan.scan_units, plan.max_count))
    offset = plan.offset
    status = ReadStatus.NO_MATCHED_MESSAGE
    while offset < end:
        units = source.units(offset, min(step, end - offset))
        if units is None:
            return None
        if not units:
            # The queue's file is missing: continue with the next one, as Apache does.
            status = ReadStatus.OFFSET_FOUND_NULL
            offset = min(
                offset - offset % plan.units_per_file + plan.units_per_file, plan.max_offset
            )
            break
        picked = pick(plan, offset, units, source)
        if picked is None:
            return None
        offset += picked.scanned
        if picked.count:
            return QueueRead(
                ReadStatus.FOUND,
                offset,
                plan.min_offset,
                plan.max_offset,
                picked.chunks,
                picked.count,
                picked.size,
            )
        if picked.any_gone:
            status = ReadStatus.MESSAGE_WAS_REMOVING
    return QueueRead(status, offset, plan.min_offset, plan.max_offset)


class ColdRead:
    """A read that has to wait for the device. `load` may run in any thread."""

    __slots__ = (
        *("_ahead_bytes", "_disk", "_log_from", "_log_to"),
        *("_path_of", "_plan", "_recent", "_recent_from"),
    )

    def __init__(self, plan: ReadPlan, queue: ConsumeQueue, disk: Disk) -> None:
        self._plan = plan
        self._disk = disk
        self._path_of = queue.path_of
        self._ahead_bytes = queue.widen_ahead(plan.offset)
        # Memory belongs to the writer's thread: copy what may be needed.
        self._recent_from = queue.tail_from
        count = max(0, plan.offset + max(plan.scan_units, plan.max_count) - queue.tail_from)
        self._recent = bytes(queue.tail[: count * UNIT.size])
        self._log_from = self._log_to = -1
        """Start and end of what was read of the log."""

    def load(self) -> QueueRead:
        """Wait for the device and finish the read, then read ahead for the pulls that follow."""
        read = read_planned(self._plan, self)
        assert read is not None, "a source that waits never says that it would have to"
        if self._log_to - self._log_from < _MOST_BETWEEN * read.size:
            self._read_ahead()
        return read

    def _read_ahead(self) -> None:
        """Bring what the next pulls need into memory."""
        start = self._log_to - self._log_to % self._plan.file_size
        with suppress(FileNotFoundError), closing(self._open(log_path(start))) as file:
            file.read_ahead(self._log_to - start, self._ahead_bytes)

    def _open(self, path: str) -> DiskFile:
        return self._disk.open(path, write=False)

    def units(self, offset: int, count: int) -> bytes | None:
        """Units from memory, or from the file through this read's own descriptor."""
        if offset >= self._recent_from:
            start = (offset - self._recent_from) * UNIT.size
            return self._recent[start : start + count * UNIT.size]
        per_file = self._plan.units_per_file
        end = min(offset + count, self._recent_from, offset - offset % per_file + per_file)
        position, length = offset % per_file * UNIT.size, (end - offset) * UNIT.size
        return self._read(self._path_of(offset), position, length, ahead=_UNITS_AHEAD)

    def log(self, log_offset: int, length: int) -> bytes | None:
        """Records from the file, through this read's own descriptor."""
        if self._log_from < 0:
            self._log_from = log_offset
        self._log_to = log_offset + length
        start = log_offset - log_offset % self._plan.file_size
        return self._read(log_path(start), log_offset - start, length)

    def _read(self, path: str, position: int, length: int, ahead: int = 0) -> bytes:
        with suppress(FileNotFoundError), closing(self._open(path)) as file:
            # Requested first, so that the read itself finds its pages and leaves no mark on one
            # that would make a later read start read-ahead.
            file.read_ahead(position, length + ahead)
            return file.read(position, length)
        return b""


Span: TypeAlias = tuple[int, int]
"""Log offsets: start and end."""


def pick(plan: ReadPlan, offset: int, units: bytes, source: Source) -> Picked | None:
    """Select among units that start at `offset` and fetch their records."""
    if plan.accepts_record is None and UNIT.unpack_from(units)[0] >= plan.own_from:
        picked = _pick_all(plan, units, source) or _pick_plain(plan, units, source)
        if picked is None or not picked.any_gone:
            return picked
    return _pick_checked(plan, offset, units, source)


def _pick_all(plan: ReadPlan, units: bytes, source: Source) -> Picked | None:
    """All records, as in most pulls; None if tags are chosen, or records do not fit or are cold."""
    if plan.accepts_tag is not None:
        return None
    fields = _many_units(len(units) // UNIT.size).unpack(units)
    sizes = fields[1::3]
    count, total = len(sizes), sum(sizes)
    if count > plan.max_count or total > plan.max_bytes:
        return None
    start, end = fields[0], fields[-3] + fields[-2]
    # Mostly adjacent, as after a batch; then they are in one file.
    spans = [(start, end)] if end - start == total else _spans(fields[::3], sizes)
    return _fetched(plan, source, spans, count, count, total)


def _spans(offsets: Sequence[int], sizes: Sequence[int]) -> list[Span]:
    """The spans of the records, adjacent ones merged."""
    ends = [*map(add, offsets, sizes)]
    spans: list[Span] = []
    start = offsets[0]
    for end, following in zip(ends, offsets[1:], strict=False):
        if end != following:
            spans.append((start, end))
            start = following
    spans.append((start, ends[-1]))
    return spans


@lru_cache(maxsize=64)
def _many_units(count: int) -> Struct:
    return Struct(">" + UNIT.format.removeprefix(">") * count)


def _pick_plain(plan: ReadPlan, units: bytes, source: Source) -> Picked | None:
    """Select records that this process wrote: only lengths are added up."""
    accepts_tag, max_bytes, max_count = plan.accepts_tag, plan.max_bytes, plan.max_count
    spans: list[Span] = []
    start = end = -1
    scanned = count = total = 0
    for log_offset, size, tag in UNIT.iter_unpack(units):
        if accepts_tag is None or tag in accepts_tag:
            if count and total + size > max_bytes:
                break
            if log_offset != end:
                if count:
                    spans.append((start, end))
                start = end = log_offset
            end += size
            total += size
            count += 1
        scanned += 1
        if count == max_count:
            break
    if not count:
        return Picked(scanned)
    spans.append((start, end))
    return _fetched(plan, source, spans, scanned, count, total)


def _fetched(
    plan: ReadPlan, source: Source, spans: Sequence[Span], scanned: int, count: int, total: int
) -> Picked | None:
    chunks = fetch(spans, plan, source)
    if chunks is None:
        return None
    return Picked(scanned, count, total, chunks, any_gone=sum(map(len, chunks)) != total)


def fetch(spans: Sequence[Span], plan: ReadPlan, source: Source) -> list[bytes | memoryview] | None:
    """The bytes of each span; spans that are close together are read at once."""
    if len(spans) == 1:
        data = source.log(spans[0][0], spans[0][1] - spans[0][0])
        return None if data is None else [data]
    chunks: list[bytes | memoryview] = []
    at = 0
    while at < len(spans):
        start, end = spans[at]
        following = at + 1
        # A read never leaves its file.
        file_end = start - start % plan.file_size + plan.file_size
        reach = min(start + _LARGEST_READ, file_end)
        while (
            following < len(spans)
            and end <= spans[following][0] <= end + plan.gap_bytes
            and spans[following][1] <= reach
        ):
            end = spans[following][1]
            following += 1
        data = source.log(start, end - start)
        if data is None:
            return None
        if following == at + 1:
            chunks.append(data)
        else:
            view = memoryview(data)
            chunks += [view[first - start : last - start] for first, last in spans[at:following]]
        at = following
    return chunks


def _pick_checked(plan: ReadPlan, offset: int, units: bytes, source: Source) -> Picked | None:
    """Select records of another process, or with a filter that inspects them: one by one."""
    picked = Picked(0)
    wanted = _wanted_units(plan, offset, units, picked)
    records = fetch([(start, start + size) for _, start, size in wanted], plan, source)
    if records is None:
        return None
    kept = []
    for (queue_offset, log_offset, size), data in zip(wanted, records, strict=True):
        is_own = log_offset >= plan.own_from and len(data) == size
        if not is_own and not _is_sound(plan, data, queue_offset, log_offset, size):
            picked.any_gone = True
        elif plan.accepts_record is None or plan.accepts_record(data):
            kept.append(data)
    picked.chunks, picked.count, picked.size = kept, len(kept), sum(map(len, kept))
    return picked


def _wanted_units(
    plan: ReadPlan, offset: int, units: bytes, picked: Picked
) -> list[tuple[int, int, int]]:
    """Queue offset, log offset and size of the units to fetch; `picked` counts those passed."""
    wanted: list[tuple[int, int, int]] = []
    for log_offset, size, tag in UNIT.iter_unpack(units):
        if log_offset < plan.min_log_offset or not 0 < size <= plan.file_size:
            if size != BLANK_UNIT_SIZE and log_offset >= plan.min_log_offset:
                plan.damaged(log_offset, size, f"unit {offset + picked.scanned} is impossible")
            picked.any_gone = True
        elif plan.accepts_tag is None or tag in plan.accepts_tag:
            if wanted and picked.size + size > plan.max_bytes:
                break
            wanted.append((offset + picked.scanned, log_offset, size))
            picked.size += size
        picked.scanned += 1
        if len(wanted) == plan.max_count:
            break
    return wanted


def _is_sound(
    plan: ReadPlan, data: bytes | memoryview, queue_offset: int, log_offset: int, size: int
) -> bool:
    try:
        record = decode_record(data)
    except RecordError as error:
        plan.damaged(log_offset, size, error.reason)
        return False
    if _is_the_one(plan, record, queue_offset, log_offset, size):
        return True
    plan.damaged(
        log_offset, size, f"unit {queue_offset} of {plan.topic}/{plan.queue_id} leads elsewhere"
    )
    return False


def _is_the_one(
    plan: ReadPlan, record: Record, queue_offset: int, log_offset: int, size: int
) -> bool:
    return (
        record.log_offset == log_offset
        and record.size == size
        and record.queue_offset == queue_offset
        and record.queue_id == plan.queue_id
        and record.topic == plan.topic
    )
