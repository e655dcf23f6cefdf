"""Appending: a record into the log, a unit into its queue, a request to the index.

The hot path. Nothing is created, allocated or opened here that `tick` could have prepared.
"""

from itertools import accumulate

from sparrowmq.protocol.record import (
    BLANK,
    BLANK_MAGIC,
    MIN_RECORD_SIZE,
    Record,
    check_record,
    encode_record,
)
from sparrowmq.protocol.record_batch import encode_records
from sparrowmq.store.commit_log import BLANK_SIZE, CommitLog
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.messages import PutBatch, PutMessage, Stored, StoredBatch
from sparrowmq.store.parts import StoreParts

# Log bytes as they travel between master and slave.
#
# A master sends pieces that end anywhere. Only whole, checked records go into the slave's log; the
# beginning of one that is still to come is held back, so that the log never holds half a record.


class RawAppend:
    """Takes a master's bytes into the log and dispatches their records."""

    def __init__(self, log: CommitLog, dispatch: Dispatch) -> None:
        self._log = log
        self._dispatch = dispatch
        self._held = b""

    @property
    def next_offset(self) -> int:
        """The log offset of the next byte to come."""
        return self._log.end + len(self._held)

    def forget_held(self) -> None:
        """The connection broke: the master will begin with the log's end again."""
        self._held = b""

    def append(self, log_offset: int, data: bytes) -> Record | None:
        """Take bytes that start at `log_offset`; returns the last record, None if none was whole.

        Raises ValueError for bytes out of turn, RecordError for bytes that are no records,
        DiskFull.
        """
        log = self._log
        if log.is_empty and not self._held and log_offset % log.file_size == 0:
            log.restart_at(log_offset)
        if log_offset > self.next_offset or log_offset < log.end - log.file_size:
            raise ValueError(f"bytes for log offset {log_offset}, expected {self.next_offset}")
        # What follows a blank record is sent too, and is known already.
        data = self._held + data[self.next_offset - log_offset :]
        self._held = b""
        last: Record | None = None
        at = 0
        try:
            while len(data) - at >= BLANK.size:
                size, magic = BLANK.unpack_from(data, at)
                if magic == BLANK_MAGIC:
                    at += self._end_file()
                    continue
                if MIN_RECORD_SIZE <= size <= log.file_size and len(data) - at < size:
                    break
                last = check_record(data, at, log.end)
                if log.make_room(size) != last.log_offset:
                    raise ValueError(f"the record at {last.log_offset} leaves no room for a blank")
                log.write(data[at : at + size])
                self._dispatch.redispatch(last)
                at += size
        finally:
            self._held = data[at:]
        return last

    def _end_file(self) -> int:
        """End the file as the master did; how many bytes of the master's that covers."""
        before = self._log.end
        self._log.end_file()
        return self._log.end - before


_UNDELIVERED = 0x4
"""The sysFlag bit that prepared and rolled-back records share."""


class Appends(StoreParts):
    """The part of a store that takes messages."""

    def append(self, put: PutMessage, now_ms: int) -> Stored:
        """Write a message. Raises DiskFull, StoreStopped, MessageTooLarge."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)  # the same one again: forget the last
        queue = self._queues.get((put.topic, put.queue_id))
        if queue is None:
            queue = self._dispatch.queue(put.topic, put.queue_id)
        log = self._log
        log_offset = log.end
        is_delivered = not put.sys_flag & _UNDELIVERED
        queue_offset = queue.max_offset if is_delivered else 0
        config = self.config
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
            config.store_host,
            put.reconsume_times,
            put.prepared_transaction_offset,
            put.body,
            put.properties,
            config.record_crc,
        )
        size = len(record)
        try:
            if log_offset + size + BLANK_SIZE > log.ready and log.make_room(size) != log_offset:
                # Another place means another record: it says where it lies.
                return self.append(put, now_ms)
            log.file.write(log_offset - log.file_start, record)  # type: ignore[union-attr]  # ready: it is open
            log.end = log_offset + size
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

    def append_batch(self, batch: PutBatch, now_ms: int) -> StoredBatch:
        """Write messages of one queue together: all of them, with contiguous offsets, or none.

        Raises DiskFull, StoreStopped, MessageTooLarge if they do not fit into one log file.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)  # the same one again: forget the last
        queue = self._dispatch.queue(batch.topic, batch.queue_id)
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
            self.config.store_host,
            batch.reconsume_times,
            batch.messages,
            self.config.record_crc,
        )
        data = b"".join(parts)
        try:
            size = len(data)
            if log_offset + size + BLANK_SIZE > log.ready and log.make_room(size) != log_offset:
                return self.append_batch(batch, now_ms)
            log.write(data)
        except OSError as error:
            raise self._failed(error) from error
        log_offsets = list(accumulate(sizes, initial=log_offset))
        end = log_offsets.pop()
        queue_offset = queue.max_offset
        self._dispatch.dispatch_batch(queue, log_offsets, sizes, batch.messages, now_ms)
        self._flushing.last_record = log_offsets[-1]
        self._flushing.last_timestamp = now_ms
        return StoredBatch(log_offsets, end, queue_offset)

    def append_raw(self, log_offset: int, data: bytes) -> int:
        """Take a master's log bytes; the log offset of the next byte to come.

        Raises ValueError for bytes out of turn, RecordError, DiskFull, StoreStopped.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)  # the same one again: forget the last
        try:
            last = self._raw.append(log_offset, data)
        except OSError as error:
            raise self._failed(error) from error
        if last is not None:
            self._flushing.last_record = last.log_offset
            self._flushing.last_timestamp = last.store_timestamp
        return self._raw.next_offset

    def forget_held_bytes(self) -> None:
        """The link to the master broke; it will begin with `max_log_offset` again."""
        self._raw.forget_held()
