"""Lookups about messages of queues, for statistics: when one was stored, how large some are.

Statistics look at every queue of a broker, so a lookup on the loop never waits for the device and
caches nothing. A time that is not in memory becomes a `ColdTime`, and a worker reads many of those
at once. Sizes are summed from the units, so appends keep no counters.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.record_layout import STORE_TIMESTAMP_BYTES, store_timestamp
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import CONSUME_QUEUE_UNIT as UNIT_SIZE
from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE, UNIT, ConsumeQueue
from sparrowmq.store.layout import log_path

_SIZE_AT = 8
"""Where the record's size lies in a unit."""
_MOST_SUMMED = 16_384
"""Units of one range that are read; the others are assumed to be as large on average. Reading and
adding this many takes half a millisecond."""


class ColdTime(msgspec.Struct, frozen=True, gc=False):
    """A store time that only files hold; `QueueLookups.load_times` reads it."""

    log_offset: int = -1
    """Where the record lies; -1 if its unit has to be read first, …"""
    queue_path: str = ""
    position: int = 0
    """… from here."""


class QueueLookups:
    """Looks up facts in the queues and the log of a store."""

    def __init__(
        self,
        disk: Disk,
        log: CommitLog,
        queues: Mapping[tuple[str, int], ConsumeQueue],
        units_per_file: int,
    ) -> None:
        self._disk = disk
        self._log = log
        self._queues = queues
        self._units_per_file = units_per_file

    def time_at(self, topic: str, queue_id: int, offset: int) -> int | ColdTime:
        """When a message of a queue was stored; -1 if it does not exist."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        if offset < queue.tail_from:
            # Not even if the file is cached: 512 files are kept open, for consumers.
            position = offset % self._units_per_file * UNIT_SIZE
            return ColdTime(queue_path=queue.path_of(offset), position=position)
        log_offset, size, _ = UNIT.unpack_from(queue.tail, (offset - queue.tail_from) * UNIT_SIZE)
        if size == BLANK_UNIT_SIZE or not self._log.min_offset <= log_offset < self._log.end:
            return -1
        head = self._log.read(log_offset, STORE_TIMESTAMP_BYTES)
        return ColdTime(log_offset=log_offset) if head is None else _time_of(head)

    def load_times(self, cold: Sequence[ColdTime]) -> list[int]:
        """Read store times, waiting for the device; may be called in any thread."""
        with ExitStack() as opened:
            logs: dict[str, DiskFile | None] = {}
            return [self._load(one, logs, opened) for one in cold]

    def _load(self, cold: ColdTime, logs: dict[str, DiskFile | None], opened: ExitStack) -> int:
        log_offset = cold.log_offset
        if log_offset < 0:
            unit = self._read_unit(cold)
            if len(unit) < UNIT_SIZE:
                return -1
            log_offset, size, _ = UNIT.unpack(unit)
            if size == BLANK_UNIT_SIZE:
                return -1
        start = log_offset - log_offset % self._log.file_size
        path = log_path(start)
        if path not in logs:
            logs[path] = file = self._open(path)
            if file is not None:
                opened.callback(file.close)
        file = logs[path]
        return (
            -1 if file is None else _time_of(file.read(log_offset - start, STORE_TIMESTAMP_BYTES))
        )

    def _read_unit(self, cold: ColdTime) -> bytes:
        file = self._open(cold.queue_path)
        if file is None:
            return b""
        try:
            return file.read(cold.position, UNIT_SIZE)
        finally:
            file.close()

    def _open(self, path: str) -> DiskFile | None:
        try:
            return self._disk.open(path, write=False)
        except FileNotFoundError:
            return None

    def bytes_in(self, topic: str, queue_id: int, first: int, end: int) -> int:
        """How many bytes the records of a range take in the log, estimated without waiting: the
        newest are read, the others assumed to be as large on average."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or first >= end:
            return 0
        at = max(first, queue.min_offset, end - _MOST_SUMMED)
        summed = counted = 0
        while at < end and (units := queue.units_at_once(at, end - at)):
            at += len(units) // UNIT_SIZE
            size, count = _sizes(units)
            summed += size
            counted += count
        return summed * (end - first) // counted if counted else 0


def _time_of(head: bytes) -> int:
    return store_timestamp(head) if len(head) == STORE_TIMESTAMP_BYTES else -1


def _sizes(units: bytes) -> tuple[int, int]:
    """The sum of the sizes in some units, and how many units have one.

    Summing the bytes of equal weight over all units takes a third of the time of unpacking them. No
    record has 16 MiB, so only blank units have a nonzero first byte.
    """
    if any(units[_SIZE_AT::UNIT_SIZE]):
        return _sum_without_blanks(size for _, size, _ in UNIT.iter_unpack(units))
    weights = (sum(units[_SIZE_AT + at :: UNIT_SIZE]) << 8 * (3 - at) for at in (1, 2, 3))
    return sum(weights), len(units) // UNIT_SIZE


def _sum_without_blanks(sizes: Iterable[int]) -> tuple[int, int]:
    known = [size for size in sizes if size != BLANK_UNIT_SIZE]
    return sum(known), len(known)
