"""Repairing a store that no broker has open: first a plan, then exactly what it says.

```
hole in the log      its bytes are copied to sparrowmq/quarantine, a filler of its size takes
                     their place: Apache, which cuts a log at the first bad record, reads past it
log file too short   extended to its size; what it lacks is a hole
log file missing     created again; its place is a hole
torn tail            copied to sparrowmq/quarantine and cut
queues and index     rebuilt from the log, beside the old files
checkpoint           rewritten, never ahead of the log
```

The broker's start repairs as well, but must be careful about what a power cut left: zeros past the
last sync end the log there. Here an operator asked, so every record that can be read is kept,
wherever it lies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from sparrowmq.clock import Zone, utc
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record import Record
from sparrowmq.store.commit_log import LogFiles
from sparrowmq.store.errors import StoreCorrupted, StoreError
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.inspect.verify import StoreFinding, verify
from sparrowmq.store.layout import CHECKPOINT, CONFIG_DIR, LOG_DIR, QUARANTINE_DIR, log_path
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.recovery.log_scan import FileEnd, Found, Hole, LogScan, last_byte
from sparrowmq.store.recovery.quarantine import SMALLEST_FILLER, fill, free_path, keep_aside
from sparrowmq.store.recovery.rebuild import check_strangers, config_of, rebuild_locked

_PROGRESS_EVERY = 16 * 1024 * 1024


class RepairStep(msgspec.Struct, frozen=True):
    """One fault in the store: where and what it is, and what a repair does about it."""

    path: str
    position: int
    length: int
    reason: str
    action: str
    kept: tuple[str, ...] = ()
    """Where the original bytes are kept once the step is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What is wrong with log, queues, index and checkpoint."""

    file_size: int
    records: int
    """Messages that can be read; a repair keeps all of them."""
    end: int
    """Where the log ends."""
    short: tuple[RepairStep, ...]
    holes: tuple[Hole, ...]
    tail: tuple[RepairStep, ...]
    """What lies past the end and is not a record."""
    derived: tuple[RepairStep, ...]

    @property
    def steps(self) -> list[RepairStep]:
        """All steps, in the order in which they are carried out."""
        filled = (_filled(hole, self.file_size) for hole in self.holes)
        return [*self.short, *filled, *self.tail, *self.derived]


# ---- planning


def plan_repair(
    disk: Disk, layout: IndexLayout, report: Callable[[StartProgress], None]
) -> RepairPlan:
    """Examine the whole store, changing nothing.

    Raises StoreCorrupted or StoreError for what no repair can fix.
    """
    check_strangers(disk)
    files = StoreFiles(disk)
    starts = files.log_starts()
    size = _file_size(disk, files, starts)
    log = LogFiles(disk, size)
    walk = _Walk(log, size, starts, files)
    holes = tuple(walk.holes(report))
    for hole in holes:
        _check_fillable(hole, size)
    short = tuple(_short_files(disk, starts, size))
    tail = tuple(_tail(log, starts, size, walk.end))
    is_log_whole = not (short or holes or tail)
    derived = _derived(disk, layout, report) if is_log_whole else _DERIVED_TOO
    return RepairPlan(
        file_size=size,
        records=walk.records,
        end=walk.end,
        short=short,
        holes=holes,
        tail=tail,
        derived=tuple(derived),
    )


_REBUILT = "queues and index are built from the log again"
_DERIVED_TOO = (RepairStep("consumequeue, index", 0, 0, "they follow the log", _REBUILT),)


def _file_size(disk: Disk, files: StoreFiles, starts: list[int]) -> int:
    """Size of a log file, even if some are truncated: our snapshot knows it, otherwise the longest
    file shows it."""
    if not starts:
        raise StoreCorrupted(LOG_DIR, 0, "there is no log file, and nothing to repair")
    snapshot = files.snapshot()
    lengths = {start: disk.size(log_path(start)) for start in starts}
    size = snapshot.log_file_size if snapshot is not None else max(lengths.values())
    for start, length in lengths.items():
        if length > size or not size or start % size:
            reason = f"{length} bytes long from log offset {start}, log files have {size}"
            raise StoreCorrupted(log_path(start), 0, f"{reason}; is it a file of another store?")
    return size


class _Walk:
    """A walk through the log that continues wherever a record can still be read."""

    def __init__(self, log: LogFiles, size: int, starts: list[int], files: StoreFiles) -> None:
        self._size = size
        self._starts = starts
        mark = files.mark()
        sure = 0 if mark is None else mark.log_offset
        self._scan = LogScan(log, size, starts, sure=sure, look_ahead=size)
        self.records = 0
        self.end = starts[0]

    def holes(self, report: Callable[[StartProgress], None]) -> Iterator[Hole]:
        """Every place that is not a record and has one after it."""
        first, total = self._starts[0], self._starts[-1] + self._size - self._starts[0]
        reported = first
        position: int | None = first
        while position is not None:
            found, position = self._at(position)
            if isinstance(found, Hole):
                yield found
            if self.end - reported >= _PROGRESS_EVERY:
                reported = self.end
                report(StartProgress("looking for damage", reported - first, total))

    def _at(self, position: int) -> tuple[Found, int | None]:
        """What lies there, and where to continue; None at the end."""
        found = next(self._scan.run(position))
        match found:
            case Record():
                self.records += 1
                self.end = found.log_offset + found.size
            case FileEnd():
                self.end = found.next_start
            case Hole():
                further = self._readable_after(found)
                if further is None:
                    return FileEnd(position, position), None
                self.end = further
                found = Hole(position, further, found.reason)
        return found, self.end

    def _readable_after(self, hole: Hole) -> int | None:
        """Where the first record after a hole lies. A scan only looks at the beginnings of later
        files, which may be damaged as well."""
        limit = None if hole.is_tail else hole.end
        for start in self._starts:
            if start > hole.start and (limit is None or start < limit):
                found = next(self._scan.run(start))
                if not isinstance(found, Hole):
                    return start
                if not found.is_tail:
                    return found.end if limit is None else min(found.end, limit)
        return limit


def _check_fillable(hole: Hole, size: int) -> None:
    """Refuse a hole smaller than any message: damage to messages cannot leave one."""
    length = hole.end - hole.start
    if hole.end % size and hole.start // size == hole.end // size and length < SMALLEST_FILLER:
        reason = f"{length} bytes are not a record, and a filler needs {SMALLEST_FILLER}"
        raise StoreCorrupted(log_path(hole.start // size * size), hole.start % size, reason)


def _short_files(disk: Disk, starts: list[int], size: int) -> Iterator[RepairStep]:
    for start in starts:
        length = disk.size(log_path(start))
        if length < size:
            missing = size - length
            reason = "the file is too short"
            yield RepairStep(log_path(start), length, missing, reason, "extended with zeros")


def _tail(log: LogFiles, starts: list[int], size: int, end: int) -> Iterator[RepairStep]:
    """Bytes past the log's end: in its last file, and in files after it."""
    in_file = end - end % size
    for start in starts:
        if start < in_file:
            continue
        begin = max(start, end)
        torn = last_byte(log, begin, start + size) - begin
        if torn:
            reason = "past the last record, and no record"
            yield RepairStep(log_path(start), begin % size, torn, reason, "cut")


def _derived(
    disk: Disk, layout: IndexLayout, report: Callable[[StartProgress], None]
) -> list[RepairStep]:
    findings: list[StoreFinding] = []

    def collect(event: StoreFinding | StartProgress) -> None:
        if isinstance(event, StartProgress):
            report(event)
        elif event.is_damage and not event.path.startswith(f"{CONFIG_DIR}/"):
            findings.append(event)

    verify(disk, collect, layout)
    return [
        RepairStep(
            each.path,
            each.position,
            0,
            each.reason,
            "written again" if each.path == CHECKPOINT else _REBUILT,
        )
        for each in findings
    ]


def _filled(hole: Hole, size: int, kept: tuple[str, ...] = ()) -> RepairStep:
    path, position = log_path(hole.start - hole.start % size), hole.start % size
    return RepairStep(
        path, position, hole.end - hole.start, hole.reason, "filled; all after it stays", kept
    )


# ---- carrying it out


def carry_out(
    disk: Disk,
    plan: RepairPlan,
    layout: IndexLayout,
    now_ms: int,
    report: Callable[[Damage | StartProgress], None],
    *,
    zone: Zone = utc,
) -> list[RepairStep]:
    """Carry out the plan, for a caller that holds the store's lock; returns what was done.

    Bytes are copied away before their place is overwritten, and the log is complete before queues
    and index are built from it: an interrupted repair can be started again. Raises DiskFull,
    OSError, StoreError.
    """
    if not plan.steps:
        return []
    done: list[RepairStep] = []
    for step in plan.short:
        _extend(disk, step.path, plan.file_size)
        done.append(step)
    for hole in plan.holes:
        done.append(_filled(hole, plan.file_size, tuple(fill(disk, plan.file_size, hole))))
    for step in plan.tail:
        done.append(_cut(disk, step, plan.file_size))
    left: list[Damage] = []

    def watch(event: Damage | StartProgress) -> None:
        if isinstance(event, Damage):
            left.append(event)
        report(event)

    rebuild_locked(disk, config_of(disk, layout), now_ms, watch, zone=zone)
    in_log = [str(each) for each in left if each.path.startswith(LOG_DIR)]
    if in_log:
        raise StoreError(f"the log is still damaged after the repair: {'; '.join(in_log)}")
    return [*done, *plan.derived]


def _extend(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path)
    try:
        file.truncate(size)
        file.sync()
    finally:
        file.close()


def _cut(disk: Disk, step: RepairStep, size: int) -> RepairStep:
    start = int(step.path.rpartition("/")[2])
    if step.position:
        begin = start + step.position
        kept = keep_aside(disk, size, begin, begin + step.length)
        file = disk.open(step.path)
        try:
            file.truncate(step.position)
            file.truncate(size)
            file.sync()
        finally:
            file.close()
    else:  # the whole file: its name goes, and recovery does not need it
        disk.mkdir(QUARANTINE_DIR)
        kept = free_path(disk, f"{QUARANTINE_DIR}/{step.path.rpartition('/')[2]}-{size}")
        disk.replace(step.path, kept)
        for directory in (QUARANTINE_DIR, LOG_DIR):
            disk.sync_dir(directory)
    return msgspec.structs.replace(step, kept=(kept,))
