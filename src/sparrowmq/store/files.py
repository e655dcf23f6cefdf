"""Reading a store's files without opening the store: for tools, and for Spark's log source.

Nothing is written and no lock is taken: a directory may be live, stopped or a copy. In a live one
the last record may still be incomplete: it counts as the end.
"""

from collections.abc import Iterator
from pathlib import Path

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.protocol.record import Record
from sparrowmq.store.commit_log import LogFiles, read_log
from sparrowmq.store.config import CONSUME_QUEUE_UNIT, StoreConfig
from sparrowmq.store.consume_queue import UNIT
from sparrowmq.store.durable_marks import Mark, Marks, Snapshot
from sparrowmq.store.errors import StoreCorrupted
from sparrowmq.store.layout import LOG_DIR, QUEUE_DIR, file_offset, log_path, queues_on
from sparrowmq.store.recovery.log_scan import FileEnd, Hole, LogScan

_UNITS_AT_ONCE = 16_384


class StoreFiles:
    """The files of a store directory, read only."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @staticmethod
    def at(directory: Path) -> "StoreFiles":
        """The store in a directory of this machine."""
        return StoreFiles(RealDisk(directory))

    def log_starts(self) -> list[int]:
        """First log offsets of the log files, ascending."""
        names = self._disk.listdir(LOG_DIR)
        return [start for name in names if (start := file_offset(name)) is not None]

    def log_file_size(self) -> int:
        """Size of a log file, 0 if there is none. Raises StoreCorrupted if sizes differ.

        The last one may be shorter while it is being created.
        """
        starts = self.log_starts()
        if not starts:
            return 0
        size = self._disk.size(log_path(starts[0]))
        for start in starts[1:]:
            length = self._disk.size(log_path(start))
            if start % size or (length != size and start != starts[-1]):
                raise StoreCorrupted(
                    log_path(start), 0, f"{length} bytes long, the first log file has {size}"
                )
        return size

    def mark(self) -> Mark | None:
        """How far the log is known to be durable."""
        return self._marks().load_mark()

    def snapshot(self) -> Snapshot | None:
        """The queues at the last checkpoint."""
        return self._marks().load_snapshot()

    def _marks(self) -> Marks:
        return Marks(StoreConfig(), self._disk)

    def scan(self, start: int | None = None) -> Iterator[Record | FileEnd | Hole]:
        """Everything in the log from `start` on, which is a record's; default: from its beginning.

        A Hole with `is_tail` is the last: what cannot be read at the end, or just nothing.
        """
        starts, size = self.log_starts(), self.log_file_size()
        if not starts:
            return iter(())
        mark = self.mark()
        sure = 0 if mark is None else mark.log_offset
        begin = starts[0] if start is None else start
        log = LogFiles(self._disk, size)
        return LogScan(log, size, starts, sure=sure, look_ahead=size).run(begin)

    def records(self, start: int | None = None) -> Iterator[Record]:
        """The valid records from `start` on, leaving out what is damaged."""
        return (found for found in self.scan(start) if isinstance(found, Record))

    def read_log(self, log_offset: int, length: int) -> bytes:
        """Raw bytes of one log file, fewer at its end."""
        size = self.log_file_size()
        return read_log(self._disk, size, log_offset, length) if size else b""

    def queues(self) -> list[tuple[str, int]]:
        """Topic and id of every queue that has a directory."""
        return queues_on(self._disk)

    def units(self, topic: str, queue_id: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Queue offset, and log offset, size and tag of every unit in a queue's files."""
        directory = f"{QUEUE_DIR}/{topic}/{queue_id}"
        for name in self._disk.listdir(directory):
            position = file_offset(name)
            if position is not None:
                yield from self._file_units(f"{directory}/{name}", position // CONSUME_QUEUE_UNIT)

    def _file_units(self, path: str, offset: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        file = self._disk.open(path, write=False)
        try:
            position = 0
            while data := file.read(position, _UNITS_AT_ONCE * UNIT.size):
                whole = len(data) - len(data) % UNIT.size
                for unit in UNIT.iter_unpack(data[:whole]):
                    if unit[1] <= 0:
                        return
                    yield offset, unit
                    offset += 1
                position += len(data)
        finally:
            file.close()
