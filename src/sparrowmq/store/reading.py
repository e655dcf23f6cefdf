"""Reading a queue: go through its units until something is found, here or in another thread."""

from sparrowmq.store.commit_log import read_log
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.disk import Disk
from sparrowmq.store.messages import QueueRead, ReadStatus
from sparrowmq.store.picking import pick
from sparrowmq.store.queue_files import UNIT
from sparrowmq.store.read_plan import ReadPlan, Source

_UNITS_AT_ONCE = 256


class ColdRead:
    """A read that has to wait for the device. `load` may run in any thread."""

    __slots__ = ("_disk", "_path_of", "_plan", "_recent", "_recent_from")

    def __init__(self, plan: ReadPlan, queue: ConsumeQueue, disk: Disk) -> None:
        self._plan = plan
        self._disk = disk
        self._path_of = queue.path_of
        # What is in memory belongs to the writer's thread: take a copy of what may be needed.
        self._recent_from = queue.tail_from
        count = max(0, plan.offset + max(plan.scan_units, plan.max_count) - queue.tail_from)
        self._recent = bytes(queue.tail[: count * UNIT.size])

    def load(self) -> QueueRead:
        """Wait for the device and finish the read."""
        read = run(self._plan, self)
        assert read is not None, "a source that waits never says that it would have to"
        return read

    def units(self, offset: int, count: int) -> bytes | None:
        """Units from memory, or from the file through a descriptor of this read's own."""
        if offset >= self._recent_from:
            start = (offset - self._recent_from) * UNIT.size
            return self._recent[start : start + count * UNIT.size]
        per_file = self._plan.units_per_file
        end = min(offset + count, self._recent_from, offset - offset % per_file + per_file)
        try:
            file = self._disk.open(self._path_of(offset), write=False)
        except FileNotFoundError:
            return b""
        try:
            return file.read(offset % per_file * UNIT.size, (end - offset) * UNIT.size)
        finally:
            file.close()

    def log(self, log_offset: int, length: int) -> bytes | None:
        """Records from the file, through a descriptor of this read's own."""
        return read_log(self._disk, self._plan.file_size, log_offset, length)


def run(plan: ReadPlan, source: Source) -> QueueRead | None:
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
            # The queue's file is missing: go on with the next, as Apache does.
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
