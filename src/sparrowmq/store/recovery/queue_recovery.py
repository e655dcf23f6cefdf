"""Restoring the consume queues: from a snapshot, from their files, or from the log alone."""

from collections.abc import Callable
from itertools import pairwise

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.names import topic_fault
from sparrowmq.protocol.record import RecordError, check_record
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE, UNIT, ConsumeQueue, FileSum
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import QueueState, Snapshot, state_of
from sparrowmq.store.layout import queues_on
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.recovery.log_scan import Hole

_CHECKED_BYTES = 64 * 1024 * 1024
"""How much of the queue files is checked at start, the newest first: about 0.1 s."""


class QueueRecovery:
    """Used once, by Recovery."""

    def __init__(
        self, disk: Disk, dispatch: Dispatch, report: Callable[[Damage | StartProgress], None]
    ) -> None:
        self._disk = disk
        self._dispatch = dispatch
        self._report = report
        self.lost: set[tuple[str, int]] = set()
        """Queues to rebuild from the whole log."""
        self._reached: dict[tuple[str, int], int] = {}
        """How far lost queues came, where the log no longer shows it."""
        self.states: list[QueueState] = []
        """The queues for records before the scan's start, for a snapshot at its end."""
        self._budget = _CHECKED_BYTES
        self._known: set[tuple[str, int]] = set()

    def load(self, snapshot: Snapshot | None, begin: int, *, is_clean: bool) -> None:
        """Set up the queues as they were for records before `begin`."""
        if snapshot is None:
            self._load_without_snapshot(begin)
            return
        self._dispatch.dropped.update(snapshot.dropped)
        known = {(state.topic, state.queue_id) for state in snapshot.queues}
        for key in queues_on(self._disk):
            if key not in known:
                # Created after the snapshot, or left over: its units come from the log again.
                self._dispatch.queue(*key).delete()
                del self._dispatch.queues[key]
        for state in snapshot.queues:
            self._load_queue(state, begin, is_clean=is_clean)

    def adopt(self, log: CommitLog, begin: int) -> bool:
        """Adopt the queues that Apache left at a normal stop, for records before `begin`.

        False if there are none, or if one leads to the wrong place: then none is trusted.
        """
        for key in queues_on(self._disk):
            queue = self._dispatch.queue(*key)
            if not self._adopt_queue(log, queue, begin):
                self._dispatch.queues.clear()
                self.states.clear()
                return False
            if queue.max_offset:
                self._known.add(key)
        return bool(self._known)

    def _adopt_queue(self, log: CommitLog, queue: ConsumeQueue, begin: int) -> bool:
        reached = self._end_in_files(queue)
        starts = queue.file_starts()
        per_file = self._dispatch.files.units_per_file
        if any(after - before != per_file for before, after in pairwise(starts)):
            return False
        queue.min_offset = starts[0] if starts else 0
        queue.max_offset = queue.written_to = queue.tail_from = reached
        if queue.min_offset > 0 and not _begins_before(log, queue):
            return False
        end = queue.first_from(begin)
        if not _leads_to_its_record(log, queue, end - 1):
            return False
        queue.truncate_files(end)
        self.states.append(state_of(queue))
        return True

    def find_unknown(self) -> None:
        """After `adopt` and a scan: find queues that began in the scan and may have lost files."""
        for key, queue in self._dispatch.queues.items():
            if key not in self._known and queue.min_offset > 0:
                self.lost.add(key)
        for key in self.lost:
            self._dispatch.forget(key)

    def _load_without_snapshot(self, log_begin: int) -> None:
        """Take everything from the log, except how far queues came that have expired entirely."""
        for topic, queue_id in queues_on(self._disk):
            queue = self._dispatch.queue(topic, queue_id)
            reached = self._end_in_files(queue)
            last = queue.unit(reached - 1) if reached else None
            if last is not None and last[0] < log_begin:
                self._reached[topic, queue_id] = reached
                self.states.append(QueueState(topic, queue_id, reached, reached, []))
            queue.delete()

    def _end_in_files(self, queue: ConsumeQueue) -> int:
        """The unit after the last one ever written, judged by the files alone."""
        starts = queue.file_starts()
        if not starts:
            return 0
        per_file = self._dispatch.files.units_per_file
        low, high = starts[-1], starts[-1] + per_file
        queue.max_offset = queue.tail_from = high
        while low < high:
            middle = (low + high) // 2
            unit = queue.unit(middle)
            if unit is not None and unit[1] > 0:
                low = middle + 1
            else:
                high = middle
        return low

    def _load_queue(self, state: QueueState, begin: int, *, is_clean: bool) -> None:
        key = state.topic, state.queue_id
        if topic_fault(state.topic) is not None or state.queue_id < 0:
            return
        queue = self._dispatch.queue(*key)
        queue.min_offset = state.min_offset
        queue.max_offset = queue.written_to = queue.tail_from = state.max_offset
        queue.sums = [FileSum(entry.first, entry.end, entry.crc) for entry in state.sums]
        fault = self._fault(queue)
        if fault is not None:
            self._report(Damage(queue.directory, 0, 0, fault, "rebuilt from the log"))
            self.lost.add(key)
            self._reached[key] = state.max_offset
            self.states.append(state)  # a crash before the next snapshot finds it lost again
            queue.delete()
            return
        if not is_clean:
            queue.truncate_files(queue.first_from(begin))
        self.states.append(state_of(queue))

    def _fault(self, queue: ConsumeQueue) -> str | None:
        """What is wrong with a queue's files, None if they are fine."""
        for entry in reversed(queue.sums):
            length = (entry.end - entry.first) * UNIT.size
            path = queue.path_of(entry.first)
            if not self._disk.exists(path):
                return f"{path} is missing"
            if self._budget >= length:
                self._budget -= length
                data = queue.units(entry.first, entry.end - entry.first, may_block=True) or b""
                if len(data) != length or crc32(data) != entry.crc:
                    return f"{path} does not hold what was written"
            self._dispatch.files.repair_size(path)
        return None

    def blank(self, hole: Hole) -> None:
        """Blank the units that lead into the hole: their messages are gone."""
        for queue in list(self._dispatch.queues.values()):
            first = queue.first_from(hole.start)
            end = queue.first_from(hole.end)
            if first < end:
                blank = self._dispatch.files.blank_unit(hole.end)
                queue.overwrite(first, blank * (end - first))

    def finish(self, log_end: int) -> None:
        """After the scan: let queues whose records have all expired keep how far they came."""
        for key, reached in self._reached.items():
            queue = self._dispatch.queue(*key)
            if queue.max_offset == 0 and reached > 0:
                queue.start_at(reached)
        for queue in list(self._dispatch.queues.values()):
            # Untouched queues lead to records before the scan, which exist.
            if queue.is_dirty:
                queue.truncate(queue.first_from(log_end))


def _begins_before(log: CommitLog, queue: ConsumeQueue) -> bool:
    """Whether a queue that has lost its beginning still covers the whole log.

    Queue files expire after the log's. So if the first unit still leads into the log, a file before
    it was lost, or the unit lies exactly at the boundary, which is rare enough to look again.
    """
    unit = queue.unit(queue.min_offset)
    return unit is not None and (unit[1] == BLANK_UNIT_SIZE or unit[0] < log.min_offset)


def _leads_to_its_record(log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether the record a unit leads to exists and matches; True for units without a record."""
    unit = queue.unit(offset)
    if unit is None or unit[1] == BLANK_UNIT_SIZE or unit[0] < log.min_offset:
        return True
    try:
        record = check_record(log.read_blocking(unit[0], unit[1]), 0, unit[0])
    except RecordError:
        return False
    found = record.topic, record.queue_id, record.queue_offset
    return found == (queue.topic, queue.queue_id, offset)
