"""Cutting off the end of a log that another copy of it does not have, and keeping it aside.

```
log        |======================|~~~~~~~~~~~~~~|      ~ only this copy has it
files      |--- 0 ---|--- 1 ------+---|--- 2 ----|
                                  cut             file 2 is moved away, the end of file 1 copied
```

Nothing is deleted. The order survives a crash at any point: first mark and snapshots stop promising
the end, then the end goes, then queues and index are rebuilt from what is left, and the lineage
loses its starts last: a start at or past the end of the log does not distinguish two copies.
"""

from collections.abc import Callable

import msgspec

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record import Record
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.durable_marks import Marks
from sparrowmq.store.epochs import LogEpochs, LogStart
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.index.key_index import INDEX_MARK
from sparrowmq.store.layout import LOCK, LOG_DIR, OWN_DIR, QUARANTINE_DIR, file_name, log_path
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.recovery.log_scan import FileEnd
from sparrowmq.store.recovery.quarantine import free_path, keep_aside
from sparrowmq.store.recovery.rebuild import rebuild_locked, remember_queues


class LogExtent(msgspec.Struct, frozen=True):
    """What a log holds, read from its files."""

    file_size: int
    begin: int
    end: int
    lineage: tuple[LogStart, ...]


class Tail(msgspec.Struct):
    """The records from a log offset on."""

    start: int
    end: int
    records: int = 0
    first_ms: int = 0
    last_ms: int = 0
    """Store times of the first and the last of them."""

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start


def extent_of(disk: Disk) -> LogExtent:
    """Where the log begins and ends, and its starts. Raises StoreCorrupted, OSError."""
    files, epochs = StoreFiles(disk), LogEpochs(disk, {})
    epochs.load()
    starts, mark = files.log_starts(), files.mark()
    begin = starts[0] if starts else 0
    known = mark is not None and begin <= mark.last_record
    end = tail_from(disk, mark.last_record if mark is not None and known else begin).end
    return LogExtent(files.log_file_size(), begin, end, tuple(epochs.lineage))


def tail_from(disk: Disk, start: int) -> Tail:
    """The records from `start` on, where one begins. Raises StoreCorrupted, OSError."""
    tail = Tail(start, start)
    for found in StoreFiles(disk).scan(start):
        if isinstance(found, FileEnd):
            tail.end = found.next_start
        elif isinstance(found, Record):
            tail.end = found.log_offset + found.size
            tail.records += 1
            tail.first_ms = tail.first_ms or found.store_timestamp
            tail.last_ms = found.store_timestamp
    return tail


def cut_tail(
    disk: Disk,
    config: StoreConfig,
    cut_at: int,
    now_ms: int,
    report: Callable[[Damage | StartProgress], None],
) -> list[str]:
    """End log, queues and index at `cut_at`; returns the paths where the cut end is kept.

    Raises StoreLocked while a broker uses the store, ValueError where no record ends at `cut_at`,
    StoreCorrupted, DiskFull or OSError.
    """
    lock = disk.lock(LOCK)
    try:
        last = _record_before(disk, config, cut_at)
        end = tail_from(disk, cut_at).end
        size = config.log_file_size
        in_file = min(end, cut_at - cut_at % size + size) if cut_at % size else cut_at
        kept = [keep_aside(disk, size, cut_at, in_file)] if in_file > cut_at else []
        _promise_less(disk, config, cut_at, last)
        kept += _move_files(disk, config, cut_at)
        _blank_rest(disk, config, cut_at)
        rebuild_locked(disk, config, now_ms, report, cut_at=cut_at, is_copy=True)
        _forget_starts(disk, cut_at)
    finally:
        lock.release()
    return kept


def _record_before(disk: Disk, config: StoreConfig, cut_at: int) -> Record:
    """The last record that stays."""
    size = config.log_file_size
    last: Record | None = None
    end = -1
    for found in StoreFiles(disk).scan((cut_at - 1) // size * size):
        if isinstance(found, Record):
            if found.log_offset >= cut_at:
                break
            last, end = found, found.log_offset + found.size
        elif isinstance(found, FileEnd):
            end = found.next_start
        if end >= cut_at:
            break
    if last is None or end != cut_at:
        raise ValueError(f"no record ends at log offset {cut_at:,}; the log is cut between records")
    return last


def _promise_less(disk: Disk, config: StoreConfig, cut_at: int, last: Record) -> None:
    """Make mark, snapshots and index stop covering the end; recovery rebuilds from the log."""
    remember_queues(StoreFiles(disk), disk, config, cut_at)
    if disk.exists(INDEX_MARK):
        disk.unlink(INDEX_MARK)
    marks = Marks(config, disk)
    marks.load_mark()
    for _ in range(2):  # both slots: the older one promises the end, too
        marks.save_mark(cut_at, last.log_offset, last.store_timestamp)
    marks.sync()
    marks.close()


def _move_files(disk: Disk, config: StoreConfig, cut_at: int) -> list[str]:
    """Move files that begin at or past the cut away, last one first, so that no gap appears."""
    moved = []
    disk.mkdir(QUARANTINE_DIR)
    for start in reversed(StoreFiles(disk).log_starts()):
        if start >= cut_at:
            path = free_path(disk, f"{QUARANTINE_DIR}/{file_name(start)}-{config.log_file_size}")
            disk.replace(log_path(start), path)
            moved.append(path)
    for directory in (QUARANTINE_DIR, OWN_DIR, LOG_DIR):
        disk.sync_dir(directory)
    return moved


def _blank_rest(disk: Disk, config: StoreConfig, cut_at: int) -> None:
    size = config.log_file_size
    if not cut_at % size:
        return
    file = disk.open(log_path(cut_at - cut_at % size))
    try:
        file.truncate(cut_at % size)
        file.truncate(size)  # zeros, which no record begins with
        file.sync()
    finally:
        file.close()


def _forget_starts(disk: Disk, cut_at: int) -> None:
    epochs = LogEpochs(disk, {})
    epochs.load()
    table = epochs.table()
    table.lineage = [one for one in table.lineage if one.start < cut_at]
    table.epochs = [one for one in table.epochs if one.start < cut_at] or table.epochs[:1]
    epochs.adopt(table)
    epochs.save()
