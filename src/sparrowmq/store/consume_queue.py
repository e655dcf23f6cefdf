"""Consume queues: which log record holds the n-th message of a topic's queue, and their files.

```
unit 20   log offset 8, record size 4, tag hash 8 (delay topics: delivery time)

 files:  |blank blank unit unit unit unit|
 memory:                       |unit unit unit|
                        tail_from ^    ^ written_to   ^ max_offset
```

New units stay in memory (`tail`) and are written together once per tick, so that an append touches
no queue file: with 8,000 queues, a write for each message would go to 8,000 places. The newest
units stay in memory even then, because consumers that keep up read nothing else.

Files are sparse and named by the byte position of their first unit. Units that are missing because
their log records are gone hold Apache's blank: log offset 0, size 2^31-1, tag 0.
"""

import struct
from sys import intern

import msgspec

from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.disk.open_files import OpenFiles
from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.record import topic_part
from sparrowmq.store.config import CONSUME_QUEUE_UNIT as UNIT_SIZE
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.layout import file_name, file_offset, queue_dir
from sparrowmq.store.trash import Trash

UNIT = struct.Struct(">qiq")
BLANK_UNIT_SIZE = 0x7FFFFFFF
BLANK_UNIT = UNIT.pack(0, BLANK_UNIT_SIZE, 0)
KEPT_UNITS = 128
"""Written units that stay in memory, so that consumers that keep up need no file."""
_READ_AHEAD = 128
"""Units that one file read fetches for a consumer working through a backlog: four pulls."""
_LEAST_AHEAD, _MOST_AHEAD = 1024 * 1024, 8 * 1024 * 1024
"""How much of the log is read ahead for such a consumer."""
_SMALL_RECORD = 128
"""Bytes: few records of the log are smaller."""


class QueueFiles:
    """The files of all consume queues: opened when needed, created when missing."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self.disk = disk
        self.units_per_file = config.queue_file_units
        self._file_size = config.queue_file_size
        self._log_file_size = config.log_file_size
        self._open = OpenFiles(disk, config.open_queue_files, write=True)
        self.unsynced: set[str] = set()
        """Paths written since the last checkpoint took them."""
        self.unsynced_dirs: set[str] = set()
        self.made = 0
        """The number of files created since the start."""

    def blank_unit(self, log_offset: int) -> bytes:
        """The unit of a lost message that precedes one whose record lies at `log_offset`.

        Apache finds no record there and then skips units up to the log file after the one that the
        blank unit names, so it names the file before. In the first file of a log that begins at 0
        there is none, and Apache skips what is left of the pull.
        """
        start = log_offset - log_offset % self._log_file_size
        return UNIT.pack(max(0, start - self._log_file_size), BLANK_UNIT_SIZE, 0)

    def open_file(self, path: str) -> DiskFile | None:
        """An existing file, None if it is missing."""
        try:
            return self._open.get(path)
        except FileNotFoundError:
            return None

    def write(self, path: str, position: int, data: bytes) -> None:
        """Write into a file, creating it at its full size if it is missing."""
        file = self.open_file(path)
        if file is None:
            file = self._make(path)
            if position:
                file.write(0, BLANK_UNIT * (position // UNIT_SIZE))
        file.write(position, data)
        self.unsynced.add(path)

    def _make(self, path: str) -> DiskFile:
        directory = path.rpartition("/")[0]
        self.disk.mkdir(directory)
        file = self.disk.open(path, create=True)
        # Sparse: 8,000 queues with all their space allocated would take 48 GB.
        file.truncate(self._file_size)
        self.made += 1
        # Topic and queue may be new as well: syncing its directory makes each name durable.
        topic_dir = directory.rpartition("/")[0]
        self.unsynced_dirs |= {directory, topic_dir, topic_dir.rpartition("/")[0]}
        return self._open.put(path, file)

    def remove(self, path: str, trash: Trash | None = None) -> None:
        """Delete a file, directly or through the trash."""
        self._open.drop(path)
        self.unsynced.discard(path)
        if trash is None:
            self.disk.unlink(path)
        else:
            trash.put(path)

    def remove_topic(self, directory: str, trash: Trash) -> None:
        """Delete a topic's directory with the files of all its queues."""
        inside = f"{directory}/"
        for path in self._open.paths():
            if path.startswith(inside):
                self._open.drop(path)
        self.unsynced = {path for path in self.unsynced if not path.startswith(inside)}
        self.unsynced_dirs = {path for path in self.unsynced_dirs if not path.startswith(inside)}
        trash.put(directory)

    def repair_size(self, path: str) -> None:
        """Give a file the length that Apache demands."""
        file = self.open_file(path)
        if file is not None and file.size() != self._file_size:
            file.truncate(self._file_size)
            self.unsynced.add(path)

    def close(self) -> None:
        """Close all."""
        self._open.close()


class FileSum(msgspec.Struct, array_like=True):
    """The CRC of units `first` up to `end` of one file, as they were written."""

    first: int
    end: int
    crc: int


class ConsumeQueue:
    """The units of one queue; those from `min_offset` to before `max_offset` can be read."""

    __slots__ = (
        "_ahead",
        "_ahead_from",
        "_cold_ahead",
        "_cold_at",
        "_files",
        "directory",
        "durable_to",
        "is_dirty",
        "is_noted",
        "is_unsynced",
        "max_offset",
        "min_offset",
        "queue_id",
        "sums",
        "tail",
        "tail_from",
        "topic",
        "topic_part",
        "written_to",
    )

    def __init__(self, topic: str, queue_id: int, files: QueueFiles) -> None:
        # One object for all queues of a topic: the index distinguishes topics by identity first
        self.topic = intern(topic)
        self.queue_id = queue_id
        self.topic_part = topic_part(topic)
        self.directory = queue_dir(topic, queue_id)
        self._files = files
        self.tail = bytearray()
        self._ahead = b""
        self._ahead_from = 0
        self._cold_at = 0
        """Where the last cold read began, …"""
        self._cold_ahead = 0
        """… and how many bytes of the log were to be read ahead of it."""
        self.is_dirty = False
        """Whether it has units that are only in memory."""
        self.is_unsynced = False
        """Whether it has units whose records no flush has taken yet."""
        self.is_noted = False
        """Dirty and unsynced are both set: an append only has to add its unit."""
        self.sums: list[FileSum] = []
        self.min_offset = self.max_offset = self.tail_from = self.written_to = 0
        self.durable_to = 0
        """Records of units before it survive a power cut."""

    def __repr__(self) -> str:
        return (
            f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_offset}..{self.max_offset})"
        )

    def start_at(self, offset: int) -> None:
        """Forget everything; the next unit gets number `offset`."""
        self.tail.clear()
        self._ahead = b""
        self.sums.clear()
        self.min_offset = self.max_offset = self.tail_from = self.written_to = offset
        self.durable_to = offset

    def path_of(self, offset: int) -> str:
        """The file that holds unit `offset`."""
        first = offset - offset % self._files.units_per_file
        return f"{self.directory}/{file_name(first * UNIT_SIZE)}"

    def write_tail(self) -> None:
        """Write what is only in memory. Raises DiskFull or OSError, keeping unwritten units."""
        per_file = self._files.units_per_file
        while self.written_to < self.max_offset:
            first = self.written_to
            end = min(self.max_offset, first - first % per_file + per_file)
            begin_byte = (first - self.tail_from) * UNIT_SIZE
            data = bytes(self.tail[begin_byte : (end - self.tail_from) * UNIT_SIZE])
            self._files.write(self.path_of(first), first % per_file * UNIT_SIZE, data)
            self._sum_up(first, end, data)
            self.written_to = end
        self.is_dirty = self.is_noted = False
        surplus = self.max_offset - self.tail_from - KEPT_UNITS
        if surplus > 0:
            # A new object, because a bytearray keeps the capacity it once had.
            self.tail = self.tail[surplus * UNIT_SIZE :]
            self.tail_from += surplus

    def _sum_up(self, first: int, end: int, data: bytes) -> None:
        if self.sums and self.sums[-1].end == first and first % self._files.units_per_file:
            last = self.sums[-1]
            last.end, last.crc = end, crc32(data, last.crc)
        else:
            self.sums.append(FileSum(first, end, crc32(data)))

    def units(self, offset: int, count: int, *, may_block: bool = False) -> bytes | None:
        """Up to `count` units from `offset` on, fewer at the end of a file or of the queue.

        None if that would have to wait for the device, unless `may_block`.
        """
        end = min(offset + count, self.max_offset)
        if offset >= self.tail_from:
            start = (offset - self.tail_from) * UNIT_SIZE
            return bytes(self.tail[start : (end - self.tail_from) * UNIT_SIZE])
        start = (offset - self._ahead_from) * UNIT_SIZE
        stop = (end - self._ahead_from) * UNIT_SIZE
        if start >= 0 and stop <= len(self._ahead):
            return self._ahead[start:stop]
        per_file = self._files.units_per_file
        readable = min(self.tail_from, offset - offset % per_file + per_file)
        end = min(end, readable)
        file = self._files.open_file(self.path_of(offset))
        if file is None:
            return b""
        position, length = offset % per_file * UNIT_SIZE, (end - offset) * UNIT_SIZE
        if may_block:
            return file.read(position, length)
        ahead = min(max(count, _READ_AHEAD), readable - offset)
        data = file.read_cached(position, ahead * UNIT_SIZE)
        if data is None:
            return None
        self._ahead, self._ahead_from = data, offset
        return data[:length]

    def units_at_once(self, offset: int, count: int) -> bytes | None:
        """`units` for statistics: None if that would have to wait for the device, and what was read
        ahead for consumers stays."""
        end = min(offset + count, self.max_offset)
        if offset >= self.tail_from:
            start = (offset - self.tail_from) * UNIT_SIZE
            return bytes(self.tail[start : (end - self.tail_from) * UNIT_SIZE])
        per_file = self._files.units_per_file
        end = min(end, self.tail_from, offset - offset % per_file + per_file)
        file = self._files.open_file(self.path_of(offset))
        if file is None:
            return b""
        return file.read_cached(offset % per_file * UNIT_SIZE, (end - offset) * UNIT_SIZE)

    def widen_ahead(self, offset: int) -> int:
        """How many bytes of the log to read ahead of a cold read at `offset`.

        The amount grows with each read that continues the last one: such a consumer waits for the
        device once per amount, which takes 50 ms each time on a saturated device.
        """
        goes_on = 0 < offset - self._cold_at <= self._cold_ahead // _SMALL_RECORD
        self._cold_ahead = min(2 * self._cold_ahead, _MOST_AHEAD) if goes_on else _LEAST_AHEAD
        self._cold_at = offset
        return self._cold_ahead

    def all_units(self, first: int, end: int) -> bytes:
        """Every unit of the range; fewer if a file is missing."""
        parts = []
        while first < end and (data := self.units(first, end - first, may_block=True)):
            parts.append(data)
            first += len(data) // UNIT_SIZE
        return b"".join(parts)

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Log offset, size and tag of one unit; None outside the queue or if it is missing."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        data = self.units(offset, 1, may_block=True)
        return UNIT.unpack(data) if data is not None and len(data) == UNIT_SIZE else None

    def first_from(self, log_offset: int) -> int:
        """The first unit whose record lies at `log_offset` or later, `max_offset` if none does."""
        end = self.max_offset
        while end > self.min_offset and self._log_offset(end - 1) is None:
            end -= 1
        low, high, step = self.min_offset, end, 1
        while step < high - low:  # it is usually close to the end, where units are in memory
            found = self._log_offset(high - step)
            if found is not None and found < log_offset:
                low = high - step + 1
            elif found is not None:
                high -= step
            step *= 2
        while low < high:
            middle = probe = (low + high) // 2
            # Blank units have no offset: the next unit with one decides for them.
            while (found := self._log_offset(probe)) is None and probe < high - 1:
                probe += 1
            if found is None or found >= log_offset:
                high = middle
            else:
                low = probe + 1
        return low if low < end else self.max_offset

    def reaches(self, log_offset: int) -> bool:
        """Whether it has a unit whose record lies at `log_offset` or later."""
        last = self._log_offset(self.max_offset - 1)
        return last is not None and last >= log_offset

    def _log_offset(self, offset: int) -> int | None:
        """The log offset in a unit; None for a blank one."""
        unit = self.unit(offset)
        return None if unit is None or unit[1] == BLANK_UNIT_SIZE else unit[0]

    def truncate(self, offset: int) -> None:
        """Forget unit `offset` and all after it; zeros replace them in the files."""
        if offset < self.max_offset:
            self.truncate_files(offset)

    def truncate_files(self, offset: int) -> None:
        """`truncate`, also for units in files past `max_offset`, which a crash may leave."""
        self._ahead = b""
        if offset < self.tail_from:
            self.tail.clear()
            self.tail_from = offset
        else:
            del self.tail[(offset - self.tail_from) * UNIT_SIZE :]
        self._clear_files(offset)
        self.max_offset = offset
        self.written_to = min(self.written_to, offset)
        self.durable_to = min(self.durable_to, offset)
        self.min_offset = min(self.min_offset, offset)
        self._cut_sums(offset)

    def _clear_files(self, offset: int) -> None:
        inside = offset % self._files.units_per_file
        file = self._files.open_file(self.path_of(offset)) if inside else None
        if file is not None:
            file.truncate(inside * UNIT_SIZE)
            self._files.repair_size(file.path)
        # Files follow each other without gaps, and asking for the next is faster than listing.
        following = offset - inside + (self._files.units_per_file if inside else 0)
        while self._files.disk.exists(self.path_of(following)):
            self._files.remove(self.path_of(following))
            following += self._files.units_per_file

    def _cut_sums(self, offset: int) -> None:
        self.sums = [entry for entry in self.sums if entry.first < offset]
        if self.sums and self.sums[-1].end > offset:
            last = self.sums.pop()
            self.sums.append(FileSum(last.first, offset, crc32(self.all_units(last.first, offset))))

    def overwrite(self, offset: int, units: bytes) -> None:
        """Replace existing units, in memory and in the files."""
        per_file = self._files.units_per_file
        for at in range(0, len(units), UNIT_SIZE):
            unit, data = offset + at // UNIT_SIZE, units[at : at + UNIT_SIZE]
            if unit >= self.tail_from:
                start = (unit - self.tail_from) * UNIT_SIZE
                self.tail[start : start + UNIT_SIZE] = data
            if unit < self.written_to:
                self._files.write(self.path_of(unit), unit % per_file * UNIT_SIZE, data)
        end = offset + len(units) // UNIT_SIZE
        for entry in self.sums:
            if entry.first < end and offset < entry.end:
                entry.crc = crc32(self.all_units(entry.first, entry.end))

    def file_starts(self) -> list[int]:
        """First units of the files in the directory, ascending."""
        names = self._files.disk.listdir(self.directory)
        return [start // UNIT_SIZE for name in names if (start := file_offset(name)) is not None]

    def set_min(self, min_log_offset: int, trash: Trash | None = None) -> None:
        """Move `min_offset` past units of records before `min_log_offset`; delete useless files.

        The last file stays even when all its records are gone: it says how far the queue came.
        """
        first = self._log_offset(self.min_offset)
        if first is not None and first >= min_log_offset:
            return
        per_file = self._files.units_per_file
        oldest = self.min_offset - self.min_offset % per_file
        self.min_offset = self.first_from(min_log_offset)
        needed = min(self.min_offset, max(self.max_offset - 1, 0))
        needed -= needed % per_file
        for first in range(oldest, needed, per_file):
            self._files.remove(self.path_of(first), trash)
        self.sums = [entry for entry in self.sums if entry.end > needed]

    def delete(self, trash: Trash | None = None) -> None:
        """Remove the directory and all files, directly or through the trash."""
        for first in self.file_starts():
            self._files.remove(self.path_of(first), trash)
        self._files.unsynced_dirs.discard(self.directory)
        self._files.disk.rmdir(self.directory)
        self.start_at(0)
