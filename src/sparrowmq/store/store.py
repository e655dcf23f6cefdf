"""The store: one commit log for all topics, consume queues, key index, checkpoint.

Synchronous, one writer, no clock, no threads: the caller says what time it is and syncs files where
it likes. A full disk is an answer (`DiskFull`) that ends when there is space again; a write or sync
that fails otherwise is the end (`StoreStopped`), because nobody knows what reached the disk.
"""

from collections.abc import Callable, Container

from sparrowmq.protocol.record import encode_record
from sparrowmq.store.commit_log import BLANK_SIZE, CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import ConsumeQueue, QueueFiles
from sparrowmq.store.disk import Disk, DiskLock
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.errors import DiskFull, StoreError, StoreStopped
from sparrowmq.store.flushing import Flushing, FlushPlan
from sparrowmq.store.layout import ABORT, LOCK, log_path
from sparrowmq.store.marks import Marks
from sparrowmq.store.message_index import MessageIndex, NoIndex
from sparrowmq.store.messages import Damage, Progress, PutMessage, QueueRead, ReadStatus, Stored
from sparrowmq.store.reading import AcceptsRecord, ColdRead, ReadPlan, run
from sparrowmq.store.recovery import Recovered, Recovery, Report

_QUEUES_PER_TICK = 256
_UNDELIVERED = 0x4
"""The sysFlag bit that prepared and rolled-back records share."""


def _ignore(_: Damage | Progress) -> None:
    pass


class Store:
    """An open store. Made by `Store.open`, ended by `close`."""

    def __init__(
        self, config: StoreConfig, disk: Disk, lock: DiskLock, index: MessageIndex, report: Report
    ) -> None:
        self.config = config
        self._disk = disk
        self._lock = lock
        self._report = report
        self._log = CommitLog(config, disk)
        self._files = QueueFiles(config, disk)
        self._dispatch = Dispatch(self._files, index, config.delay_levels_ms)
        self._queues = self._dispatch.queues
        self._marks = Marks(config, disk)
        self._flushing = Flushing(config, disk, self._log, self._dispatch, self._marks)
        self._refusal: StoreError | None = None
        self._own_from = 0
        self._reported: set[int] = set()

    @staticmethod
    def open(
        config: StoreConfig,
        disk: Disk,
        now_ms: int,
        report: Report = _ignore,
        index: MessageIndex | None = None,
    ) -> "Store":
        """Open the store on `disk`, repairing what a crash left. `report` is told about damage.

        Raises StoreLocked, StoreCorrupted, DiskFull, or OSError.
        """
        disk.mkdir("")
        lock = disk.lock(LOCK)
        try:
            store = Store(config, disk, lock, index if index is not None else NoIndex(), report)
            store._recover(now_ms)
        except BaseException:
            lock.release()
            raise
        return store

    def _recover(self, now_ms: int) -> None:
        recovery = Recovery(
            self.config, self._disk, self._log, self._dispatch, self._marks, self._report
        )
        found: Recovered = recovery.run()
        self._log.continue_at(found.end)
        self._own_from = found.end
        self._flushing.start(now_ms, found.durable, found.durable)
        self._flushing.last_record = found.last_record
        self._flushing.last_timestamp = found.last_timestamp
        self._set_min()
        self._dispatch.write_tails(len(self._dispatch.dirty))
        self._disk.open(ABORT, create=True).close()
        self._disk.sync_dir("")
        self._log.prepare()

    def _set_min(self) -> None:
        min_log_offset = self._log.min_offset
        for queue in self._queues.values():
            queue.set_min(min_log_offset)

    def close(self, now_ms: int) -> None:
        """Make everything durable and let go of the directory.

        After a failure nothing is marked: the next start recovers as after a crash.
        """
        try:
            if not isinstance(self._refusal, StoreStopped):
                self._log.close()
                self._flushing.close()
                self._disk.unlink(ABORT)
                self._disk.sync_dir("")
        except DiskFull:
            pass  # the abort marker stays, the next start scans
        finally:
            self._log.close()
            self._files.close()
            self._marks.close()
            self._lock.release()

    # appending

    def append(self, put: PutMessage, now_ms: int) -> Stored:
        """Write a message. Raises DiskFull, StoreStopped, MessageTooLarge."""
        if self._refusal is not None:
            raise self._refusal
        queue = self._queues.get((put.topic, put.queue_id))
        if queue is None:
            queue = self._dispatch.queue(put.topic, put.queue_id)
        log = self._log
        log_offset = log.end
        is_delivered = not put.sys_flag & _UNDELIVERED
        queue_offset = queue.max_offset if is_delivered else 0
        record = self._encode(put, queue, queue_offset, log_offset, now_ms)
        size = len(record)
        try:
            if log_offset + size + BLANK_SIZE > log.ready:
                log_offset = log.make_room(size)
                record = self._encode(put, queue, queue_offset, log_offset, now_ms)
            log.write(record)
        except OSError as error:
            raise self._failed(error) from error
        flushing = self._flushing
        flushing.last_record = log_offset
        flushing.last_timestamp = now_ms
        if is_delivered:
            self._dispatch.dispatch(
                queue, log_offset, size, put.tags_code, put.uniq_key, put.keys, now_ms
            )
        return Stored(log_offset, size, queue_offset, now_ms)

    def _encode(
        self, put: PutMessage, queue: ConsumeQueue, queue_offset: int, log_offset: int, now_ms: int
    ) -> bytes:
        config = self.config
        return encode_record(
            queue.topic_part,
            put.queue_id,
            put.flag,
            queue_offset,
            log_offset,
            put.sys_flag,
            put.born_timestamp,
            put.born_host,
            now_ms,
            config.store_host,
            put.reconsume_times,
            put.prepared_transaction_offset,
            put.body,
            put.properties,
            config.record_crc,
        )

    def _failed(self, error: OSError) -> StoreStopped:
        self.fail(f"writing failed: {error}")
        assert isinstance(self._refusal, StoreStopped)
        return self._refusal

    def fail(self, reason: str) -> None:
        """Nothing may be acknowledged any more, for instance because a sync failed."""
        if not isinstance(self._refusal, StoreStopped):
            self._refusal = StoreStopped(reason)

    # reading

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
    ) -> QueueRead | ColdRead:
        """Records of a queue from `offset` on, or a ColdRead if the device has to be waited for.

        At least one message is returned however large it is. A filter that rejects a long run of
        messages ends the read early; `next_offset` tells where to go on.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return QueueRead(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        least, most = queue.min_offset, queue.max_offset
        if not least <= offset < most:
            return _out_of_range(offset, least, most)
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
            self._own_from,
            self.config.scan_units,
            self.config.merge_gap_bytes,
            self._log.file_size,
            self._damaged,
        )
        read = run(plan, _Hot(queue, self._log))
        if read is None:
            return ColdRead(plan, queue, self._disk, self._files.units_per_file)
        return read

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

    @property
    def min_log_offset(self) -> int:
        """Where the oldest log file starts."""
        return self._log.min_offset

    @property
    def max_log_offset(self) -> int:
        """Where the next record goes."""
        return self._log.end

    # durability

    @property
    def durable_log_offset(self) -> int:
        """Records before it survive a power cut."""
        return self._flushing.durable

    def begin_flush(self, *, urgent: bool = False) -> FlushPlan | None:
        """What to sync now; None if nothing is to be done or a flush is under way.

        With `urgent` the log alone: somebody waits for it.
        """
        return self._flushing.begin_flush(urgent=urgent)

    def finish_flush(self, plan: FlushPlan) -> None:
        """Everything in the plan has been synced."""
        try:
            self._flushing.finish_flush(plan)
        except DiskFull as error:
            self._refuse(error)

    def _refuse(self, error: StoreError) -> None:
        if not isinstance(self._refusal, StoreStopped):
            self._refusal = error

    def tick(self, now_ms: int) -> None:
        """Write what is only in memory, prepare space; call it every 20 to 100 ms."""
        if isinstance(self._refusal, StoreStopped):
            return
        try:
            self._log.prepare()
            self._flushing.tick(now_ms, _QUEUES_PER_TICK)
            self._refusal = None
        except DiskFull as error:
            self._refusal = error
        except OSError as error:
            self._failed(error)


class _Hot:
    """The queue and the log as far as they are in memory."""

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
