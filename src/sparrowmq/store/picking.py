"""Choosing among a queue's units, and fetching their records in as few reads as possible.

Nothing is decoded on the way to a consumer. Records that this process did not write itself are
checked first (CRC, position, topic, queue, offset): a damaged one is reported and left out.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add
from struct import Struct
from typing import TypeAlias

from sparrowmq.protocol.record import Record, RecordError, decode_record
from sparrowmq.store.queue_files import BLANK_UNIT_SIZE, UNIT
from sparrowmq.store.read_plan import Picked, ReadPlan, Source

Span: TypeAlias = tuple[int, int]
"""Log offsets: start and end."""

_LARGEST_READ = 1024 * 1024


def pick(plan: ReadPlan, offset: int, units: bytes, source: Source) -> Picked | None:
    """Choose among units that start at `offset` and fetch their records."""
    if plan.accepts_record is None and UNIT.unpack_from(units)[0] >= plan.own_from:
        picked = _pick_all(plan, units, source) or _pick_plain(plan, units, source)
        if picked is None or not picked.any_gone:
            return picked
    return _pick_checked(plan, offset, units, source)


def _pick_all(plan: ReadPlan, units: bytes, source: Source) -> Picked | None:
    """What most pulls get: every record, and there is room for them. None if not, or not yet."""
    if plan.accepts_tag is not None:
        return None
    fields = _many_units(len(units) // UNIT.size).unpack(units)
    sizes = fields[1::3]
    count, total = len(sizes), sum(sizes)
    if count > plan.max_count or total > plan.max_bytes:
        return None
    start, end = fields[0], fields[-3] + fields[-2]
    # Mostly one behind the other, as after a batch; then they are in one file.
    spans = [(start, end)] if end - start == total else _spans(fields[::3], sizes)
    return _fetched(plan, source, spans, count, count, total)


def _spans(offsets: Sequence[int], sizes: Sequence[int]) -> list[Span]:
    """Where records lie, neighbours together."""
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
    """Records of our own making: only lengths are added up."""
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
    """The bytes of each span; spans close to each other are read together."""
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
    """Records of another process, or a filter that wants to see them: one by one."""
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
    """Queue offset, log offset and size of the units to fetch; `picked` learns what was passed."""
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
