"""Appending: a record into the log, a unit into its queue, a request to the index.

This is the hot path, run once for every message on the broker's only thread, so two rules hold.
Nothing is created, allocated, opened or synced here that `Store.tick` can prepare or `begin_flush`
can hand to another thread: between ticks an append is one `pwrite` into reserved, warmed pages and
one addition to a queue's tail in memory. And nothing is written twice: the record is encoded once,
with its final log offset; only if the file turns out to be full, once per gibibyte, is it encoded
again for the next file.

The log comes first. A record in the log without its unit is repaired by every recovery; a unit
without its record would lead consumers to bytes that are not a message. After a failed write it is
unknown what reached the disk, so the store stops taking messages (see `admission`).
"""

from collections.abc import Iterable
from itertools import accumulate

from sparrowmq.protocol.record import encode_record
from sparrowmq.protocol.record_batch import encode_records
from sparrowmq.store.admission import Admission
from sparrowmq.store.commit_log import BLANK_SIZE, CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.messages import PutBatch, PutMessage, Stored, StoredBatch
from sparrowmq.store.raw_log import RawAppend

_UNDELIVERED = 0x4
"""The sysFlag bit that prepared and rolled-back records have in common."""


class Appender:
    """Appends messages, one at a time, in batches, or as bytes of a master's log."""

    def __init__(
        self, config: StoreConfig, log: CommitLog, dispatch: Dispatch, admission: Admission
    ) -> None:
        self._store_host = config.store_host
        self._record_crc = config.record_crc
        self._log = log
        self._queues = dispatch.queues
        self._queue = dispatch.queue
        self._dispatch = dispatch.dispatch
        self._dispatch_batch = dispatch.dispatch_batch
        self._admission = admission
        self._raw = RawAppend(log, dispatch)

    def append(self, put: PutMessage, now_ms: int) -> Stored:
        """Write a message. Raises DiskFull, StoreStopped, MessageTooLarge."""
        if self._admission.must_check:
            self._admission.check()
        queue = self._queues.get((put.topic, put.queue_id))
        if queue is None:
            queue = self._queue(put.topic, put.queue_id)
        log = self._log
        log_offset = log.end
        is_delivered = not put.sys_flag & _UNDELIVERED
        queue_offset = queue.max_offset if is_delivered else 0
        record = encode_record(
            queue.topic_part,
            put.queue_id,
            put.flag,
            queue_offset,
            log_offset,
            put.sys_flag,
            put.born_timestamp,
            put.born_host,
            now_ms,
            self._store_host,
            put.reconsume_times,
            put.prepared_transaction_offset,
            put.body,
            put.properties,
            self._record_crc,
        )
        size = len(record)
        try:
            if log_offset + size + BLANK_SIZE > log.ready and log.make_room(size) != log_offset:
                # A different offset needs a different record: a record contains its own offset.
                return self.append(put, now_ms)
            log.file.write(log_offset - log.file_start, record)  # type: ignore[union-attr]  # ready: it is open
            log.end = log_offset + size
        except OSError as error:
            raise self._admission.write_failed(error) from error
        log.last_record = log_offset
        log.last_timestamp = now_ms
        if is_delivered:
            self._dispatch(queue, log_offset, size, put.tags_code, put.uniq_key, put.keys, now_ms)
        return Stored(log_offset, size, queue_offset, now_ms)

    def append_batch(self, batch: PutBatch, now_ms: int) -> StoredBatch:
        """Write messages of one queue together: all of them, with contiguous offsets, or none.

        Raises DiskFull, StoreStopped, MessageTooLarge if they do not fit into one log file.
        """
        if self._admission.must_check:
            self._admission.check()
        queue = self._queue(batch.topic, batch.queue_id)
        log = self._log
        log_offset = log.end
        parts, sizes = encode_records(
            queue.topic_part,
            batch.queue_id,
            queue.max_offset,
            log_offset,
            batch.sys_flag,
            batch.born_timestamp,
            batch.born_host,
            now_ms,
            self._store_host,
            batch.reconsume_times,
            batch.messages,
            self._record_crc,
        )
        data = b"".join(parts)
        try:
            size = len(data)
            if log_offset + size + BLANK_SIZE > log.ready and log.make_room(size) != log_offset:
                return self.append_batch(batch, now_ms)
            log.write(data)
        except OSError as error:
            raise self._admission.write_failed(error) from error
        log_offsets = list(accumulate(sizes, initial=log_offset))
        end = log_offsets.pop()
        queue_offset = queue.max_offset
        self._dispatch_batch(queue, log_offsets, sizes, batch.messages, now_ms)
        log.last_record = log_offsets[-1]
        log.last_timestamp = now_ms
        return StoredBatch(log_offsets, end, queue_offset)

    def append_raw(self, log_offset: int, data: bytes) -> int:
        """Append a master's log bytes; returns the log offset of the next byte expected.

        Raises ValueError for bytes out of turn, RecordError, DiskFull, StoreStopped.
        """
        self._admission.check_copying()
        try:
            self._raw.append(log_offset, data)
        except OSError as error:
            raise self._admission.write_failed(error) from error
        return self._raw.next_offset

    def take_copied(self) -> Iterable[tuple[str, int]]:
        """Topic and id of queues that received messages from a master since the last call."""
        return self._raw.take_grown()

    def forget_held_bytes(self) -> None:
        """The link to the master broke; it will start again at `max_log_offset`."""
        self._raw.forget_held()
