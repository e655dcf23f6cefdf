"""What the store knows to be durable: our own files in addition to RocketMQ's checkpoint.

```
sparrowmq/mark        two slots of 4 KiB: how far the log is durable, written after every sync
sparrowmq/queues.0/1  the queues as they were when everything derived from the log up to a certain
                      offset was durable: recovery starts there
checkpoint            RocketMQ's: times of the last durable message, queue unit and index entry
```

Each is written only after what it describes is durable. Mark and snapshots alternate between two
places and carry a CRC: the newest intact one counts. The checkpoint has neither, as in RocketMQ.
All positions are log offsets; no clock decides anything.
"""

import struct
import threading

import msgspec

from sparrowmq.disk.atomic_file import read_file
from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.crc import crc32
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import ConsumeQueue, FileSum
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.layout import CHECKPOINT, OWN_DIR

MARK = f"{OWN_DIR}/mark"
_SLOT_SIZE = 4096
_MARK = struct.Struct(">4sQqqq")
_MARK_MAGIC = b"SPM1"
_CRC = struct.Struct(">I")
_SNAPSHOT_HEAD = struct.Struct(">4sII")
_SNAPSHOT_MAGIC = b"SPQ1"
_CHECKPOINT = struct.Struct(">qqqqq")
_CHECKPOINT_SIZE = 4096


class Mark(msgspec.Struct, frozen=True):
    """The log is durable up to `log_offset`; the last record before it is at `last_record`."""

    sequence: int
    log_offset: int
    last_record: int
    store_timestamp: int


class QueueState(msgspec.Struct, array_like=True):
    """A queue at the time of a snapshot."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    sums: list[FileSum]


class Snapshot(msgspec.Struct):
    """Everything derived from records before `log_offset` is durable."""

    sequence: int
    log_offset: int
    is_clean: bool
    """The store was closed: there is nothing after this snapshot."""
    log_file_size: int
    queue_file_units: int
    queues: list[QueueState]
    dropped: dict[str, int]
    min_log_offset: int = -1
    """Where the log began; the queues' minimum offsets refer to it."""


def state_of(queue: ConsumeQueue) -> QueueState:
    """A queue's state, without units that are only in memory."""
    sums = [FileSum(entry.first, entry.end, entry.crc) for entry in queue.sums]
    return QueueState(queue.topic, queue.queue_id, queue.min_offset, queue.written_to, sums)


class Marks:
    """Reads and writes mark, snapshots and checkpoint."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._mark_file: DiskFile | None = None
        self._mark_sequence = 0
        self._snapshot_sequence = 0
        self._written = [0, 0]
        """The newest snapshot in each of the two files."""
        self._writing_snapshot = threading.Lock()
        self._is_closed = False

    def load_mark(self) -> Mark | None:
        """The newest intact mark."""
        data = read_file(self._disk, MARK) or b""
        found = [mark for at in (0, _SLOT_SIZE) if (mark := _decode_mark(data, at)) is not None]
        best = max(found, key=lambda mark: mark.sequence, default=None)
        if best is not None:
            self._mark_sequence = best.sequence
        return best

    def save_mark(self, log_offset: int, last_record: int, store_timestamp: int) -> None:
        """Record that the log is durable up to `log_offset`. Raises DiskFull, or OSError."""
        self._mark_sequence += 1
        head = _MARK.pack(
            _MARK_MAGIC, self._mark_sequence, log_offset, last_record, store_timestamp
        )
        if self._mark_file is None:
            self._disk.mkdir(OWN_DIR)
            self._mark_file = self._disk.open(MARK, create=True)
        position = self._mark_sequence % 2 * _SLOT_SIZE
        self._mark_file.write(position, head + _CRC.pack(crc32(head)))

    def load_snapshot(self) -> Snapshot | None:
        """The newest intact snapshot."""
        found = [
            snapshot
            for slot in (0, 1)
            if (snapshot := _decode_snapshot(read_file(self._disk, _snapshot_path(slot)) or b""))
        ]
        best = max(found, key=lambda snapshot: snapshot.sequence, default=None)
        if best is not None:
            self._snapshot_sequence = best.sequence
        return best

    def save_snapshot(
        self,
        log_offset: int,
        queues: list[QueueState],
        dropped: dict[str, int],
        *,
        min_log_offset: int = -1,
        is_clean: bool = False,
        sync: bool = False,
    ) -> str:
        """Record that everything derived from records before `log_offset` is durable.

        Returns the path written.
        """
        snapshot = self.next_snapshot(
            log_offset, queues, dropped, min_log_offset=min_log_offset, is_clean=is_clean
        )
        return self.write_snapshot(snapshot, sync=sync)

    def next_snapshot(
        self,
        log_offset: int,
        queues: list[QueueState],
        dropped: dict[str, int],
        *,
        min_log_offset: int = -1,
        is_clean: bool = False,
    ) -> Snapshot:
        """The same, to be written by `write_snapshot`."""
        self._snapshot_sequence += 1
        return Snapshot(
            self._snapshot_sequence,
            log_offset,
            is_clean,
            self._config.log_file_size,
            self._config.queue_file_units,
            queues,
            dict(dropped),
            min_log_offset,
        )

    def write_snapshot(self, snapshot: Snapshot, *, sync: bool = False) -> str:
        """Write a snapshot, unless there is a newer one in its file; returns the path. May run in
        another thread while others are written. Raises DiskFull, OSError, or StoreStopped after
        `close`."""
        slot = snapshot.sequence % 2
        path = _snapshot_path(slot)
        body = msgspec.msgpack.encode(snapshot)
        with self._writing_snapshot:
            if self._is_closed:
                raise StoreStopped("the store was closed before its snapshot was written")
            self._disk.mkdir(OWN_DIR)
            file = self._disk.open(path, create=True)
            try:
                if snapshot.sequence > self._written[slot]:
                    head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_MAGIC, len(body), crc32(body))
                    file.write(0, head + body)
                    self._written[slot] = snapshot.sequence
                if sync:
                    file.sync()
                    self._disk.sync_dir(OWN_DIR)  # the file may be new
            finally:
                file.close()
        return path

    def save_checkpoint(self, log_time: int, queue_time: int, index_time: int) -> None:
        """Write RocketMQ's checkpoint; its offsets belong to replication and stay unchanged."""
        file = self._disk.open(CHECKPOINT, create=True)
        try:
            old = file.read(0, _CHECKPOINT.size)
            offsets = _CHECKPOINT.unpack(old)[3:] if len(old) == _CHECKPOINT.size else (0, 0)
            if file.size() != _CHECKPOINT_SIZE:
                file.truncate(_CHECKPOINT_SIZE)
            file.write(0, _CHECKPOINT.pack(log_time, queue_time, index_time, *offsets))
        finally:
            file.close()

    def sync(self) -> None:
        """Make all of them durable, for a normal stop."""
        for path in (MARK, CHECKPOINT, _snapshot_path(0), _snapshot_path(1)):
            if self._disk.exists(path):
                self._disk.sync(path)
        self._disk.sync_dir(OWN_DIR)

    def close(self) -> None:
        """Close the mark file; what another thread has not begun to write stays unwritten."""
        with self._writing_snapshot:
            self._is_closed = True
        if self._mark_file is not None:
            self._mark_file.close()
            self._mark_file = None


def load_checkpoint(disk: Disk) -> tuple[int, int, int]:
    """Times of the last durable message, queue unit and index entry; zeros if there is none."""
    data = (read_file(disk, CHECKPOINT) or b"")[: _CHECKPOINT.size]
    if len(data) < _CHECKPOINT.size:
        return 0, 0, 0
    log_time, queue_time, index_time, _, _ = _CHECKPOINT.unpack(data)
    return log_time, queue_time, index_time


def _snapshot_path(slot: int) -> str:
    return f"{OWN_DIR}/queues.{slot}"


def _decode_mark(data: bytes, at: int) -> Mark | None:
    head = data[at : at + _MARK.size]
    check = data[at + _MARK.size : at + _MARK.size + _CRC.size]
    if len(check) < _CRC.size or _CRC.unpack(check)[0] != crc32(head):
        return None
    magic, sequence, log_offset, last_record, store_timestamp = _MARK.unpack(head)
    if magic != _MARK_MAGIC:
        return None
    return Mark(sequence, log_offset, last_record, store_timestamp)


def _decode_snapshot(data: bytes) -> Snapshot | None:
    if len(data) < _SNAPSHOT_HEAD.size:
        return None
    magic, length, check = _SNAPSHOT_HEAD.unpack_from(data)
    body = data[_SNAPSHOT_HEAD.size : _SNAPSHOT_HEAD.size + length]
    if magic != _SNAPSHOT_MAGIC or len(body) != length or crc32(body) != check:
        return None
    return msgspec.msgpack.decode(body, type=Snapshot)
