"""Appending: a record into the log, a unit into its queue, a request to the index.

The hot path. Nothing is created, allocated or opened here that `tick` could have prepared.
"""

from collections.abc import Sequence

from sparrowmq.protocol.record import encode_record
from sparrowmq.store.commit_log import BLANK_SIZE
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.messages import PutMessage, Stored
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

    def append_batch(self, puts: Sequence[PutMessage], now_ms: int) -> list[Stored]:
        """Write messages of one queue together: all of them, with contiguous offsets, or none.

        Raises DiskFull, StoreStopped, MessageTooLarge if they do not fit into one log file.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)  # the same one again: forget the last
        queue = self._dispatch.queue(puts[0].topic, puts[0].queue_id)
        log = self._log
        records = self._encode_all(puts, queue, log.end, now_ms)
        data = b"".join(records)
        try:
            if log.end + len(data) + BLANK_SIZE > log.ready:
                start = log.make_room(len(data))
                records = self._encode_all(puts, queue, start, now_ms)
                data = b"".join(records)
            log_offset = log.end
            log.write(data)
        except OSError as error:
            raise self._failed(error) from error
        stored = []
        dispatch = self._dispatch.dispatch
        for put, record in zip(puts, records, strict=True):
            size = len(record)
            stored.append(Stored(log_offset, size, queue.max_offset, now_ms))
            dispatch(queue, log_offset, size, put.tags_code, put.uniq_key, put.keys, now_ms)
            log_offset += size
        self._flushing.last_record = stored[-1].log_offset
        self._flushing.last_timestamp = now_ms
        return stored

    def _encode_all(
        self, puts: Sequence[PutMessage], queue: ConsumeQueue, log_offset: int, now_ms: int
    ) -> list[bytes]:
        records = []
        queue_offset = queue.max_offset
        for put in puts:
            record = self._encode(put, queue, queue_offset, log_offset, now_ms)
            records.append(record)
            log_offset += len(record)
            queue_offset += 1
        return records

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
