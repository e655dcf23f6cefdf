"""Reading: queues by offset, messages by log offset, time or key."""

import sys
from collections.abc import Callable, Container, Iterator

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record import Record
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import UNIT, ConsumeQueue
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.layout import log_path
from sparrowmq.store.messages import Damage, QueueRead, ReadStatus, Report
from sparrowmq.store.queries import (
    Boundary,
    KeyFound,
    find_by_key,
    offset_by_time,
    read_record,
    store_time,
)
from sparrowmq.store.queue_read import AcceptsRecord, ColdRead, ReadPlan, read_planned


class Reader:
    """Finds messages. Reads of a queue never wait for the device: see `ColdRead`."""

    def __init__(
        self, config: StoreConfig, disk: Disk, log: CommitLog, dispatch: Dispatch, report: Report
    ) -> None:
        self._disk = disk
        self._log = log
        self._queues = dispatch.queues
        self._index = dispatch.index
        self._units_per_file = dispatch.files.units_per_file
        self._scan_units = config.scan_units
        self._gap_bytes = config.merge_gap_bytes
        self._unsynced_window = self._window = config.unsynced_window
        """The second is -1 while a limit applies: every read looks for the visible end then."""
        self._limit = sys.maxsize
        self._report = report
        self._reported: set[int] = set()
        """Log offsets of damaged records: each is reported only once."""

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_count: int = 32,
        max_bytes: int = 1024 * 1024,
        accepts_tag: Container[int] | None = None,
        accepts_record: AcceptsRecord | None = None,
        only_visible: bool = False,
    ) -> QueueRead | ColdRead:
        """Records of a queue from `offset` on, or a ColdRead if reading has to wait for the device.

        At least one message is returned, however large it is. A filter that rejects a long run of
        messages ends the read early; `next_offset` is where to continue. With `only_visible` the
        queue ends where it ends for consumers: see `visible_range`.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return QueueRead(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        least, most = queue.min_offset, queue.max_offset
        if only_visible and most - queue.durable_to > self._window:
            most = self._visible_end(queue)
            if most <= offset <= queue.max_offset:
                overflow = ReadStatus.OFFSET_OVERFLOW_ONE
                return QueueRead(
                    overflow, offset, least, most, has_unsynced=most < queue.max_offset
                )
        if not least <= offset < most:
            return _out_of_range(offset, least, most)
        if offset + 1 == most == queue.max_offset and accepts_record is None:
            newest = self._newest(queue, accepts_tag)
            if newest is not None:
                return QueueRead(ReadStatus.FOUND, most, least, most, (newest,), 1, len(newest))
        plan = ReadPlan(
            topic,
            queue_id,
            offset,
            least,
            most,
            max_count,
            max_bytes,
            accepts_tag,
            accepts_record,
            self._log.min_offset,
            self._log.own_from,
            self._scan_units,
            self._gap_bytes,
            self._log.file_size,
            self._units_per_file,
            self._damaged,
        )
        read = read_planned(plan, _Hot(queue, self._log))
        if read is None:
            return ColdRead(plan, queue, self._disk)
        return read

    def _newest(self, queue: ConsumeQueue, accepts_tag: Container[int] | None) -> bytes | None:
        """The last record of a queue, which is all that a consumer that keeps up ever asks for.

        None if it is not in memory, another process wrote it, or the filter rejects it: the caller
        then reads in the general way.
        """
        if not queue.tail:
            return None
        log_offset, size, tag = UNIT.unpack_from(queue.tail, len(queue.tail) - UNIT.size)
        if log_offset < self._log.own_from or (accepts_tag is not None and tag not in accepts_tag):
            return None
        data = self._log.read(log_offset, size)
        return data if data is not None and len(data) == size else None

    def _damaged(self, log_offset: int, size: int, reason: str) -> None:
        if log_offset in self._reported:
            return
        self._reported.add(log_offset)
        path = log_path(self._log.start_of(log_offset))
        position = log_offset % self._log.file_size
        self._report(Damage(path, position, size, reason, "left out of what is read"))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset that can be read, 0 for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset the next message gets, 0 for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """`min_offset` and `max_offset`."""
        queue = self._queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def visible_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The part of a queue that consumers may see: from `min_offset` to at most
        `unsynced_window` messages past the last durable one. A consumer that has seen more
        could, after a power cut, miss new messages that get the same offsets."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0, 0
        return queue.min_offset, self._visible_end(queue)

    def limit_readers(self, log_offset: int) -> None:
        """Show consumers nothing that lies at or past a log offset; sys.maxsize ends that."""
        self._limit = log_offset
        self._window = -1 if log_offset < sys.maxsize else self._unsynced_window

    def _visible_end(self, queue: ConsumeQueue) -> int:
        end = min(queue.max_offset, queue.durable_to + self._unsynced_window)
        if self._limit >= self._log.end or not queue.reaches(self._limit):
            return end
        return min(end, queue.first_from(self._limit))

    def queues(self) -> Iterator[tuple[str, int]]:
        """Topic and id of every queue."""
        return iter(list(self._queues))

    def units(
        self, topic: str, queue_id: int, from_offset: int, limit: int
    ) -> list[tuple[int, int, int]]:
        """Log offset, size and tag field of up to `limit` messages; none out of range."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= from_offset < queue.max_offset:
            return []
        end = min(from_offset + limit, queue.max_offset)
        return list(UNIT.iter_unpack(queue.all_units(from_offset, end)))

    def units_at_once(
        self, topic: str, queue_id: int, from_offset: int, limit: int
    ) -> bytes | None:
        """Some of the units from an offset on, as they are stored; none out of range, None if that
        would have to wait for the device."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= from_offset < queue.max_offset:
            return b""
        return queue.units_at_once(from_offset, limit)

    def read_message(self, log_offset: int) -> bytes | None:
        """The record at a log offset, None if none starts there; may wait for the device."""
        found = read_record(self._log, log_offset, check_crc=log_offset < self._log.own_from)
        return None if found is None else found[1]

    def read_record(self, log_offset: int) -> Record | None:
        """`read_message`, decoded: checking that the record exists decodes it anyway."""
        found = read_record(self._log, log_offset, check_crc=log_offset < self._log.own_from)
        return None if found is None else found[0]

    def read_log(self, log_offset: int, max_bytes: int) -> bytes:
        """Raw bytes of one file from `log_offset` on, for a slave; empty at the end of the log.

        It may block: `read_log_at_once` does not.
        """
        data = self.read_log_at_once(log_offset, max_bytes)
        if data is None:
            length = self._log_bytes_at(log_offset, max_bytes)
            data = self._log.read_blocking(log_offset, length)
        return data

    def read_log_at_once(self, log_offset: int, max_bytes: int) -> bytes | None:
        """`read_log` without waiting for the device; None if it would have to."""
        length = self._log_bytes_at(log_offset, max_bytes)
        return self._log.read(log_offset, length) if length > 0 else b""

    def _log_bytes_at(self, log_offset: int, max_bytes: int) -> int:
        log = self._log
        file_end = log.start_of(log_offset) + log.file_size
        return min(max_bytes, log.end - log_offset, file_end - log_offset)

    def queue_offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The queue offset at a store time, 0 for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else offset_by_time(self._log, queue, timestamp, boundary)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored, -1 if there is none."""
        for log_offset, _, _ in self.units(topic, queue_id, self.min_offset(topic, queue_id), 1):
            return self.store_time(log_offset)
        return -1

    def store_time(self, log_offset: int) -> int:
        """When the record at a log offset was stored, -1 if none starts there.

        Reads only its head: statistics of a group look at a message of every queue.
        """
        time = store_time(self._log, log_offset)
        return -1 if time is None else time

    def find_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> KeyFound:
        """Messages that have the key, as unique id or among their keys, newest first."""
        offsets, is_cut = find_by_key(self._log, self._index, topic, key, begin_ms, end_ms, limit)
        return KeyFound(offsets, is_cut, self._log.last_timestamp, self._log.last_record)


class _Hot:
    """The parts of queue and log that are in memory."""

    __slots__ = ("_queue", "log")

    def __init__(self, queue: ConsumeQueue, log: CommitLog) -> None:
        self._queue = queue
        self.log: Callable[[int, int], bytes | None] = log.read

    def units(self, offset: int, count: int) -> bytes | None:
        return self._queue.units(offset, count)


def _out_of_range(offset: int, least: int, most: int) -> QueueRead:
    if most == 0:
        return QueueRead(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, least, most)
    if offset < least:
        return QueueRead(ReadStatus.OFFSET_TOO_SMALL, least, least, most)
    if offset == most:
        return QueueRead(ReadStatus.OFFSET_OVERFLOW_ONE, offset, least, most)
    return QueueRead(ReadStatus.OFFSET_OVERFLOW_BADLY, most, least, most)
