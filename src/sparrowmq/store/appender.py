"""Appending: a record into the log, a unit into its queue, a request to the index.

The hot path. Nothing is created, allocated or opened here that `tick` could have prepared.
"""

from itertools import accumulate

from sparrowmq.protocol.record import (
    encode_record,
)
from sparrowmq.protocol.record_batch import encode_records
from sparrowmq.store.commit_log import BLANK_SIZE
from sparrowmq.store.messages import PutBatch, PutMessage, Stored, StoredBatch
from sparrowmq.store.parts import StoreParts

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
