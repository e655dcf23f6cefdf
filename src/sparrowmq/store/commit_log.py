"""The commit log: one sequence of bytes across files of equal size; only the last is written.

```
       file 0            file 1                  file 2 (made ahead)
|record record blank|record record|..|..reserved..|                 |
^ min                             ^ end ^ ready   ^ reserved
```

A record fits only if eight bytes are left after it, for the blank record that ends a file.
`prepare` reserves space ahead of the writer, outside appends; `make_room` does so within an append
only if the writer was faster. Its pages are brought into memory in small steps.
"""

from bisect import bisect_left

from sparrowmq.disk.disk import Bytes, Disk, DiskFile
from sparrowmq.disk.open_files import OpenFiles
from sparrowmq.protocol.record import encode_blank
from sparrowmq.protocol.record_layout import BLANK
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.errors import MessageTooLarge
from sparrowmq.store.layout import LOG_DIR, file_offset, log_path
from sparrowmq.store.trash import Trash

BLANK_SIZE = BLANK.size
WARM_BYTES = 256 * 1024
"""Bytes warmed at once. Less costs more calls; 1 MiB and more, cold memory (decision 14)."""
_OPEN_FOR_READING = 64


class CommitLog:
    """The log's files. The next record goes to `end` and may reach to `ready`."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self._disk = disk
        self.file_size = config.log_file_size
        self._reserve = min(config.reserve_bytes, self.file_size)
        self._readers = OpenFiles(disk, _OPEN_FOR_READING, write=False)
        self.starts: list[int] = []
        """First log offsets of the files, ascending."""
        self.file: DiskFile | None = None
        """The file being written; None until `prepare` or `make_room` opens it."""
        self.file_start = 0
        self.end = 0
        self.ready = 0
        self.own_from = 0
        """Records from here on were written by this process: reading them needs no check."""
        self.last_record = -1
        """Start of the last record; -1 if the log never had one."""
        self.last_timestamp = 0
        """Store time of that record."""
        self._reserved = 0
        self._ahead: DiskFile | None = None
        self.names_changed = False
        """A file was created or removed since the last sync of the directory."""

    def load(self) -> None:
        """Read which files the directory holds."""
        names = self._disk.listdir(LOG_DIR)
        self.starts = [start for name in names if (start := file_offset(name)) is not None]

    @property
    def min_offset(self) -> int:
        """Where the oldest file starts."""
        return self.starts[0] if self.starts else self.end

    def start_of(self, log_offset: int) -> int:
        """First offset of the file that holds `log_offset`."""
        return log_offset - log_offset % self.file_size

    def starts_from(self, log_offset: int) -> list[int]:
        """First offsets of the written files that hold `log_offset` or anything after it."""
        if log_offset >= self.file_start:
            return [self.file_start]  # the usual case, however many files there are
        first = bisect_left(self.starts, self.start_of(log_offset))
        return [start for start in self.starts[first:] if start < self.end]

    def continue_at(self, end: int, last_record: int, last_timestamp: int) -> None:
        """Continue writing at `end`, where recovery found the log to end."""
        self._close_active()
        self.end = self.ready = self._reserved = self.own_from = end
        self.last_record, self.last_timestamp = last_record, last_timestamp
        self.file_start = self.start_of(end)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no record at all, not even expired ones."""
        return self.end == self.min_offset

    def restart_at(self, start: int) -> None:
        """Let an empty log begin at the start of another file."""
        self._close_active()
        for existing in list(self.starts):
            self.remove(existing)
        self.continue_at(start, self.last_record, self.last_timestamp)

    def write(self, data: Bytes) -> None:
        """Append bytes; `make_room` has made sure that they fit."""
        end = self.end
        self.file.write(end - self.file_start, data)  # type: ignore[union-attr]  # make_room opened it
        self.end = end + len(data)

    def make_room(self, size: int) -> int:
        """Make sure that `size` bytes and a blank record fit; returns the log offset for them.

        Continues in the next file if needed. Raises DiskFull, changing nothing, and
        MessageTooLarge.
        """
        if size + BLANK_SIZE > self.file_size:
            raise MessageTooLarge(size, self.file_size - BLANK_SIZE)
        left = self.file_start + self.file_size - self.end
        if size + BLANK_SIZE > left:
            self._roll(left)
        self._open_active()
        needed = self.end + size + BLANK_SIZE
        if needed > self._reserved:
            self._reserve_to(max(needed, self.end + self._reserve))
        if needed > self.ready:
            self._warm_to(max(needed, self.ready + WARM_BYTES))
        return self.end

    def end_file(self) -> None:
        """Continue in the next file, however much is left of this one. Raises DiskFull."""
        self._roll(self.file_start + self.file_size - self.end)

    def prepare(self) -> None:
        """Reserve space ahead of the writer, so that appends find it. Raises DiskFull."""
        self._open_active()
        file_end = self.file_start + self.file_size
        if self._reserved - self.end >= self._reserve // 2:
            return
        if self._reserved < file_end:
            self._reserve_to(self._reserved + self._reserve)
        if self._reserved == file_end and self._ahead is None:
            self._ahead = self._make_file(file_end)

    def _open_active(self) -> None:
        if self.file is not None:
            return
        if self.file_start in self.starts:
            file = self._disk.open(log_path(self.file_start))
            if file.size() != self.file_size:
                file.truncate(self.file_size)
            self.file = file
        else:
            self.file = self._make_file(self.file_start)
            self._reserved = self.file_start + self._reserve

    def _make_file(self, start: int) -> DiskFile:
        path = log_path(start)
        self._disk.mkdir(LOG_DIR)
        file = self._disk.open(path, create=True)
        try:
            # Apache refuses files of another length; only the reserved part takes space.
            file.truncate(self.file_size)
            file.reserve(0, self._reserve)
        except Exception:
            file.close()
            self._disk.unlink(path)
            raise
        self.starts.append(start)
        self.names_changed = True
        return file

    def _reserve_to(self, reserved: int) -> None:
        assert self.file is not None
        reserved = min(reserved, self.file_start + self.file_size)
        self.file.reserve(self._reserved - self.file_start, reserved - self._reserved)
        self._reserved = reserved

    def _warm_to(self, ready: int) -> None:
        assert self.file is not None
        ready = min(ready, self._reserved)
        self.file.warm(self.ready - self.file_start, ready - self.ready)
        self.ready = ready

    def _roll(self, left: int) -> None:
        next_start = self.file_start + self.file_size
        if self._ahead is None:
            self._ahead = self._make_file(next_start)
        if left >= BLANK_SIZE:
            self._open_active()
            assert self.file is not None
            self.file.write(self.end - self.file_start, encode_blank(left))
        if self.file is not None:
            self.file.close()
        self.file, self._ahead = self._ahead, None
        self.file_start = self.end = self.ready = next_start
        self._reserved = next_start + self._reserve

    def read(self, log_offset: int, length: int) -> bytes | None:
        """Bytes of one file, None if reading them would have to wait for the device.

        Fewer bytes than requested mean that the file is gone or truncated.
        """
        start = log_offset - log_offset % self.file_size
        file = self.file
        if start != self.file_start or file is None:
            try:
                file = self._readers.get(log_path(start))
            except FileNotFoundError:
                return b""
        return file.read_cached(log_offset - start, length)

    def read_blocking(self, log_offset: int, length: int) -> bytes:
        """The same, waiting for the device."""
        return read_log(self._disk, self.file_size, log_offset, length)

    def remove(self, start: int, trash: Trash | None = None) -> None:
        """Delete a file other than the one being written, directly or through the trash."""
        path = log_path(start)
        self._readers.drop(path)
        if trash is None:
            self._disk.unlink(path)
        else:
            trash.put(path)
        self.starts.remove(start)
        self.names_changed = True

    def close(self) -> None:
        """Close the files; remove one created ahead and never used."""
        unused = self._ahead is not None
        self._close_active()
        self._readers.close()
        if unused:
            self.remove(self.file_start + self.file_size)

    def _close_active(self) -> None:
        for file in (self.file, self._ahead):
            if file is not None:
                file.close()
        self.file = self._ahead = None


def read_log(disk: Disk, file_size: int, log_offset: int, length: int) -> bytes:
    """Read one log file through a separate descriptor, so that any thread may call it."""
    start = log_offset - log_offset % file_size
    try:
        file = disk.open(log_path(start), write=False)
    except FileNotFoundError:
        return b""
    try:
        return file.read(log_offset - start, length)
    finally:
        file.close()


class LogFiles:
    """The bytes of a log that no process has open, for a scan."""

    def __init__(self, disk: Disk, file_size: int) -> None:
        self._disk = disk
        self._file_size = file_size

    def read_blocking(self, log_offset: int, length: int) -> bytes:
        """Bytes of one file, fewer at its end, none if it is missing."""
        return read_log(self._disk, self._file_size, log_offset, length)
