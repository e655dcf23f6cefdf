"""Raw log bytes that a slave receives from its master.

A master sends pieces that may end anywhere. Only complete, checked records go into the slave's log;
the beginning of an incomplete one is held back, so that the log never holds half a record.
"""

from collections.abc import Iterable

from sparrowmq.protocol.record import RecordError, check_record
from sparrowmq.protocol.record_layout import BLANK, BLANK_MAGIC, MIN_RECORD_SIZE
from sparrowmq.protocol.record_outline import RecordOutline, outline_run
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.dispatch import Dispatch


class RawAppend:
    """Appends a master's bytes to the log and dispatches their records."""

    def __init__(self, log: CommitLog, dispatch: Dispatch) -> None:
        self._log = log
        self._dispatch = dispatch
        self._held = b""
        self._grown: dict[tuple[str, int], None] = {}

    @property
    def next_offset(self) -> int:
        """The log offset of the next byte expected."""
        return self._log.end + len(self._held)

    def forget_held(self) -> None:
        """The connection broke: the master will start again at the log's end."""
        self._held = b""

    def take_grown(self) -> Iterable[tuple[str, int]]:
        """Topic and id of queues that received messages since the last call."""
        grown, self._grown = self._grown, {}
        return grown

    def append(self, log_offset: int, data: bytes) -> None:
        """Append bytes that start at `log_offset`.

        Raises ValueError for bytes out of sequence, RecordError for bytes that are not records,
        DiskFull.
        """
        log = self._log
        if log.is_empty and not self._held and log_offset % log.file_size == 0:
            log.restart_at(log_offset)
        if log_offset > self.next_offset or log_offset < log.end - log.file_size:
            raise ValueError(f"bytes for log offset {log_offset}, expected {self.next_offset}")
        # The master also sends the bytes after a blank record, which are already known.
        data = self._held + data[self.next_offset - log_offset :]
        self._held = b""
        run: list[RecordOutline] = []
        first = at = 0
        try:
            while True:
                ordinary = outline_run(data, at, log.end + at - first, self._room_to)
                if ordinary:
                    run += ordinary
                    at = first + run[-1].log_offset + run[-1].size - log.end
                if len(data) - at < BLANK.size:
                    break
                size, magic = BLANK.unpack_from(data, at)
                if magic == BLANK_MAGIC:
                    self._write(data[first:at], run)
                    first, run = at, []
                    at += self._end_file(size)
                    first = at
                    continue
                if MIN_RECORD_SIZE <= size <= log.file_size and len(data) - at < size:
                    break
                run.append(self._check(data, at, log.end + at - first))
                at += size
        finally:
            self._write(data[first:at], run)
            self._held = data[at:]

    @property
    def _room_to(self) -> int:
        """How far records may reach in this file: a blank must fit after them."""
        return self._log.file_start + self._log.file_size - BLANK.size

    def _check(self, data: bytes, at: int, log_offset: int) -> RecordOutline:
        """Check a record that is not an ordinary one. Raises RecordError, ValueError."""
        try:
            record = check_record(data, at, log_offset)
        except RecordError as error:
            raise RecordError(log_offset, error.reason) from error
        if log_offset + record.size > self._room_to:
            raise ValueError(f"the record at {log_offset} leaves no room for a blank")
        return RecordOutline.of(record)

    def _write(self, data: bytes, records: list[RecordOutline]) -> None:
        """Write several records at once: a third of the cost of one write each."""
        if not records:
            return
        log = self._log
        assert log.make_room(len(data)) == records[0].log_offset
        log.write(data)
        log.last_record = records[-1].log_offset
        log.last_timestamp = records[-1].store_timestamp
        self._dispatch.redispatch_run(records)
        for record in records:
            self._grown[record.topic, record.queue_id] = None

    def _end_file(self, size: int) -> int:
        """End the file as the master did; returns how many of the master's bytes that covers."""
        before = self._log.end
        left = self._log.file_start + self._log.file_size - before
        if size != left:
            raise RecordError(before, f"a blank record of {size} bytes, but {left} are left")
        self._log.end_file()
        return self._log.end - before
