"""Verifying a whole store without changing anything: does every file match the log?

```
log       every record: magic, length, CRCs, own position; holes; what lies past its end
queues    every delivered record has its unit at its offset, and no unit leads elsewhere
index     every key has its entries, every entry its place in a chain, every slot its newest
others    checkpoint, config tables
```

What a crash leaves to the next start (units and entries past the last checkpoint, a torn tail) is
reported, but not as damage.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from sparrowmq.disk.atomic_file import read_file
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.json_reader import parse_json
from sparrowmq.protocol.record import Record
from sparrowmq.store.commit_log import read_log
from sparrowmq.store.durable_marks import load_checkpoint
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.index.index_recovery import IndexMarkFile
from sparrowmq.store.index.key_index import INDEX_MARK
from sparrowmq.store.inspect.verify_index import IndexCheck
from sparrowmq.store.inspect.verify_queues import FoundDamage, QueueChecks
from sparrowmq.store.layout import ABORT, CHECKPOINT, CONFIG_DIR, log_path
from sparrowmq.store.messages import StartProgress
from sparrowmq.store.recovery.log_scan import FileEnd, Hole
from sparrowmq.store.recovery.quarantine import FILLER_TOPIC

_CHECKPOINT_SIZE = 4096
_PROGRESS_EVERY = 4 * 1024 * 1024
_TAIL_LOOKED_AT = 1024 * 1024


class StoreFinding(msgspec.Struct, frozen=True):
    """Something at byte `position` of `path`; unless it is damage, the next start fixes it."""

    path: str
    position: int
    reason: str
    is_damage: bool = True

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.reason}"


Report: TypeAlias = Callable[[StoreFinding | StartProgress], None]


class Verified(msgspec.Struct):
    """What was checked."""

    log_files: int = 0
    log_bytes: int = 0
    records: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    tables: int = 0
    damage: int = 0
    left_to_start: int = 0
    skipped: list[str] = []
    """What could not be checked, and why."""


class Verification:
    """One check of the store on `disk`; `index_layout` if it is not RocketMQ's."""

    def __init__(self, disk: Disk, report: Report, index_layout: IndexLayout | None = None) -> None:
        self._disk = disk
        self._report = report
        self._index_layout = index_layout or IndexLayout()
        self._files = StoreFiles(disk)
        self.found = Verified()
        self._last_timestamp = 0
        self._end = 0

    def run(self) -> Verified:
        """Check everything. Raises StoreCorrupted or OSError for what cannot be read at all."""
        starts, file_size = self._files.log_starts(), self._files.log_file_size()
        self.found.log_files = len(starts)
        snapshot = self._files.snapshot()
        is_stopped = not self._disk.exists(ABORT)
        checkpointed = snapshot.log_offset if snapshot is not None else 0
        sure = None if is_stopped else checkpointed
        dropped = snapshot.dropped if snapshot is not None else {}
        queues = QueueChecks(self._disk, self._files, self._found, sure, dropped)
        mark = IndexMarkFile(self._disk, INDEX_MARK).read() if not is_stopped else None
        index_sure = None if is_stopped else (mark.safe_log_offset if mark is not None else 0)
        begin = starts[0] if starts else 0
        index = IndexCheck(self._disk, self._index_layout, self._found, index_sure, begin, mark)
        self.found.skipped += index.skipped
        if starts:
            self._walk(starts, file_size, queues, index, is_stopped=is_stopped)
        queues.finish(begin, self._end)
        index.finish(self._end)
        self.found.queues, self.found.units = len(queues.queues), queues.units
        self.found.index_files, self.found.index_entries = index.files, index.entries
        check_checkpoint(self._disk, self._found, self._last_timestamp)
        self.found.tables = check_tables(self._disk, self._found)
        return self.found

    def _walk(
        self,
        starts: list[int],
        file_size: int,
        queues: QueueChecks,
        index: IndexCheck,
        *,
        is_stopped: bool,
    ) -> None:
        total = starts[-1] + file_size - starts[0]
        reported = starts[0]
        for found in self._files.scan():
            match found:
                case Record():
                    self._end = found.log_offset + found.size
                    self._record(found, queues, index)
                case FileEnd():
                    self._end = found.next_start
                case Hole(is_tail=False):
                    self._end = found.end
                    reason = f"{found.end - found.start} bytes are not a record: {found.reason}"
                    self._log_finding(found.start, file_size, reason, is_damage=True)
                    queues.hole(found.start, found.end)
                case Hole():
                    self._tail(found, file_size, is_stopped=is_stopped)
            if self._end - reported >= _PROGRESS_EVERY:
                reported = self._end
                self._report(StartProgress("verify", reported - starts[0], total))
        self.found.log_bytes = self._end - starts[0]
        self._report(StartProgress("verify", total, total))

    def _record(self, record: Record, queues: QueueChecks, index: IndexCheck) -> None:
        self.found.records += 1
        if record.topic == FILLER_TOPIC:
            queues.hole(record.log_offset, record.log_offset + record.size)
            return
        self._last_timestamp = max(self._last_timestamp, record.store_timestamp)
        if record.is_delivered:
            queues.record(record)
            index.record(record)

    def _tail(self, hole: Hole, file_size: int, *, is_stopped: bool) -> None:
        left = file_size - hole.start % file_size
        rest = read_log(self._disk, file_size, hole.start, min(left, _TAIL_LOOKED_AT))
        if any(rest):
            reason = f"no record and not empty: {hole.reason}"
            self._log_finding(hole.start, file_size, reason, is_damage=is_stopped)

    def _log_finding(
        self, log_offset: int, file_size: int, reason: str, *, is_damage: bool
    ) -> None:
        path = log_path(log_offset - log_offset % file_size)
        self._found(path, log_offset % file_size, reason, is_damage)

    def _found(self, path: str, position: int, reason: str, is_damage: bool) -> None:
        if is_damage:
            self.found.damage += 1
        else:
            self.found.left_to_start += 1
        self._report(StoreFinding(path, position, reason, is_damage))


def verify(disk: Disk, report: Report, index_layout: IndexLayout | None = None) -> Verified:
    """Check the store on `disk`, read only, reporting every finding and the progress.

    Raises StoreCorrupted or OSError for what cannot be read at all.
    """
    return Verification(disk, report, index_layout).run()


def check_checkpoint(disk: Disk, found: FoundDamage, last_timestamp: int) -> None:
    """No time in the checkpoint may be ahead of the log: Apache trusts them."""
    if not disk.exists(CHECKPOINT):
        return
    size = disk.size(CHECKPOINT)
    if size != _CHECKPOINT_SIZE:
        found(CHECKPOINT, 0, f"{size} bytes long, must be {_CHECKPOINT_SIZE}", True)
    names = ("last message", "last queue unit", "last index entry")
    for number, (name, time) in enumerate(zip(names, load_checkpoint(disk), strict=True)):
        if time > last_timestamp:
            reason = f"time of the {name} is {time}, the youngest message is of {last_timestamp}"
            found(CHECKPOINT, 8 * number, reason, True)


def check_tables(disk: Disk, found: FoundDamage) -> int:
    """Every table and backup must be JSON, as Java writes it; returns how many there are."""
    names = [name for name in disk.listdir(CONFIG_DIR) if name.endswith((".json", ".json.bak"))]
    for name in names:
        path = f"{CONFIG_DIR}/{name}"
        try:
            _decode(disk, path)
        except BodyError as error:
            found(path, 0, f"is not JSON: {error}", True)
    return len(names)


def _decode(disk: Disk, path: str) -> Any:
    return parse_json(read_file(disk, path) or b"")
