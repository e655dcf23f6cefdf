"""Checking consume queues against the log, record by record as the log is read."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.properties import decode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE, UNIT
from sparrowmq.store.dispatch import unit_tag
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.layout import file_offset, queue_dir

FoundDamage: TypeAlias = Callable[[str, int, str, bool], None]
"""Path, position, reason, whether it is damage."""

_WINDOW = 1024
_DELAYS_MS = StoreConfig().delay_levels_ms
_MISSING = (0, 0, 0)


class QueueCheck:
    """One queue: where its units are, and how far the log has confirmed them."""

    def __init__(self, disk: Disk, topic: str, queue_id: int) -> None:
        self._disk = disk
        self.directory = queue_dir(topic, queue_id)
        self.starts: list[int] = []
        self.units_per_file = 0
        for name in disk.listdir(self.directory):
            position = file_offset(name)
            if position is not None:
                self.starts.append(position // UNIT.size)
                size = disk.size(f"{self.directory}/{name}") // UNIT.size
                self.units_per_file = max(self.units_per_file, size)
        self.next_offset: int | None = None
        self._window: list[tuple[int, int, int]] = []
        self._window_at = 0

    def unit(self, offset: int) -> tuple[int, int, int]:
        """The unit at an offset, zeros if there is none."""
        at = offset - self._window_at
        if not 0 <= at < len(self._window):
            self._load(offset)
            at = 0
        return self._window[at] if self._window else _MISSING

    def where(self, offset: int) -> tuple[str, int]:
        """File and position of a unit."""
        first = offset - offset % self.units_per_file if self.units_per_file else 0
        return f"{self.directory}/{first * UNIT.size:020d}", (offset - first) * UNIT.size

    def _load(self, offset: int) -> None:
        self._window, self._window_at = [], offset
        path, position = self.where(offset)
        try:
            file: DiskFile = self._disk.open(path, write=False)
        except FileNotFoundError:
            return
        try:
            data = file.read(position, _WINDOW * UNIT.size)
        finally:
            file.close()
        self._window = list(UNIT.iter_unpack(data[: len(data) // UNIT.size * UNIT.size]))


class QueueChecks:
    """All queues. `sure` is where the last checkpoint was, None if the store was stopped."""

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        found: FoundDamage,
        sure: int | None,
        dropped: Mapping[str, int],
    ) -> None:
        self._disk = disk
        self._found = found
        self._sure = sure
        self._dropped = dropped
        self.queues = {key: QueueCheck(disk, *key) for key in files.queues()}
        self.units = 0
        self._holes: list[tuple[int, int]] = []

    def hole(self, start: int, end: int) -> None:
        """Note log bytes without records: queues may have blank units for what was there."""
        self._holes.append((start, end))

    def record(self, record: Record) -> None:
        """Check that a delivered record has its unit."""
        if record.log_offset < self._dropped.get(record.topic, 0):
            return
        key = record.topic, record.queue_id
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = QueueCheck(self._disk, *key)
        offset = record.queue_offset
        if queue.next_offset is not None and offset != queue.next_offset:
            self._jump(queue, record)
        queue.next_offset = offset + 1
        self.units += 1
        log_offset, size, tag = unit = queue.unit(offset)
        if (log_offset, size) != (record.log_offset, record.size):
            self._wrong(queue, record, unit)
        elif record.topic != SCHEDULE_TOPIC and tag != _tag_of(record):
            self._found(*queue.where(offset), f"tag {tag}, the message has {_tag_of(record)}", True)

    def _jump(self, queue: QueueCheck, record: Record) -> None:
        assert queue.next_offset is not None
        if record.queue_offset < queue.next_offset:
            reason = f"message {record.queue_offset} at log offset {record.log_offset}"
            before = queue.next_offset - 1
            self._found(*queue.where(record.queue_offset), f"{reason} follows {before}", True)
            return
        for offset in range(queue.next_offset, min(record.queue_offset, queue.next_offset + 1000)):
            if queue.unit(offset)[1] != BLANK_UNIT_SIZE:
                self._found(*queue.where(offset), "a unit for a message the log lacks", True)

    def _wrong(self, queue: QueueCheck, record: Record, unit: tuple[int, int, int]) -> None:
        expected = f"log offset {record.log_offset}, size {record.size}"
        is_late = unit == _MISSING and self._sure is not None and record.log_offset >= self._sure
        if unit == _MISSING:
            reason = f"no unit for {expected}"
        else:
            reason = f"leads to log offset {unit[0]}, size {unit[1]}; expected {expected}"
        self._found(*queue.where(record.queue_offset), reason, not is_late)

    def finish(self, min_log_offset: int, end: int) -> None:
        """Check that there is nothing past the last message of each queue."""
        for queue in self.queues.values():
            offset = queue.next_offset
            if offset is None:
                offset = self._first_unexpired(queue, min_log_offset)
            log_offset, size, _ = queue.unit(offset)
            if size == 0:
                continue
            in_hole = any(start <= log_offset < stop for start, stop in self._holes)
            is_blank = size == BLANK_UNIT_SIZE
            if not is_blank and not in_hole:
                is_late = self._sure is not None and log_offset >= min(self._sure, end)
                reason = f"leads to log offset {log_offset}, where no message of this queue is"
                self._found(*queue.where(offset), reason, not is_late)

    def _first_unexpired(self, queue: QueueCheck, min_log_offset: int) -> int:
        for start in sorted(queue.starts):
            for offset in range(start, start + queue.units_per_file):
                log_offset, size, _ = queue.unit(offset)
                if size == 0 or (size != BLANK_UNIT_SIZE and log_offset >= min_log_offset):
                    return offset
        return max(queue.starts, default=0) + queue.units_per_file


def _tag_of(record: Record) -> int:
    properties = decode_properties(record.properties)
    return unit_tag(record.topic, record.store_timestamp, properties, _DELAYS_MS)
