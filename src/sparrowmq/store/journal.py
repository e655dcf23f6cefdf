"""A journal: entries appended to a file, each with its CRC, and replayed over a table at start.

```
magic 4, length 4, CRC32 of the entry 4, entry
```

Consumer offsets change all the time and their table is large, so it is saved rarely and the changes
in between are appended here every second. Two files take turns: `rotate` begins a new one when the
table has been saved, and the previous one stays in case the table's `.bak` has to be used. Entries
hold states, not changes, so replaying too much does no harm as long as everything in a saved table
was appended before.
"""

import struct
from collections.abc import Callable, Iterator

from sparrowmq.disk.atomic_file import read_file
from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.crc import crc32
from sparrowmq.store.layout import OWN_DIR
from sparrowmq.store.messages import Damage

_MAGIC = b"SPJ1"
_HEAD = struct.Struct(">4sII")
_MAX_ENTRY = 256 * 1024 * 1024


class Journal:
    """One journal below `sparrowmq/`; `replay` comes first."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.path = f"{OWN_DIR}/{name}.journal"
        """What to sync after an `append`."""
        self._before = f"{OWN_DIR}/{name}.journal.1"
        self._disk = disk
        self._file: DiskFile | None = None
        self._is_unnamed = False
        """The file was created, and its name is not durable yet."""
        self.size = 0
        """Bytes since the last `rotate`."""

    def replay(self, report: Callable[[Damage], None]) -> list[bytes]:
        """All entries, oldest first. A torn tail is cut, damage in the middle is left out."""
        entries: list[bytes] = []
        for path in (self._before, self.path):
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                continue
            data = file.read(0, file.size())
            end = 0
            for position, entry in _whole_entries(data):
                if position > end:
                    gap = Damage(path, end, position - end, "no valid entry", "left out")
                    report(gap)
                entries.append(entry)
                end = position + _HEAD.size + len(entry)
            if end < len(data):
                file.truncate(end)
                file.sync()
            file.close()
            self.size = end if path == self.path else 0
        return entries

    def read(self) -> list[bytes]:
        """All complete entries, oldest first, of a journal that another process may be writing."""
        found: list[bytes] = []
        for path in (self._before, self.path):
            data = read_file(self._disk, path) or b""
            found += [entry for _, entry in _whole_entries(data)]
        return found

    def append(self, entry: bytes) -> None:
        """Write an entry; durable when `path` has been synced. Raises DiskFull, or OSError.

        After an error the entry is not in the journal, and appending may be tried again.
        """
        if not 0 < len(entry) <= _MAX_ENTRY:
            raise ValueError(f"an entry of {len(entry)} bytes, 1 to {_MAX_ENTRY} are allowed")
        file = self._open()
        # A failed write leaves half an entry past `size`; the next write overwrites it.
        file.write(self.size, _HEAD.pack(_MAGIC, len(entry), crc32(entry)) + entry)
        self.size += _HEAD.size + len(entry)

    def sync(self) -> None:
        """Make the journal durable before returning."""
        self._open().sync()

    def rotate(self, first: bytes | None = None) -> None:
        """Start over, as a durable table now has all entries; with `first` if given."""
        self._open().close()
        self._file = None
        self._disk.replace(self.path, self._before)
        self.size = 0
        if first is not None:
            self.append(first)
            self.sync()
        self._open()
        self._disk.sync_dir(OWN_DIR)

    def discard(self) -> None:
        """Forget all entries: the table was written by a broker that did not know them."""
        self.close()
        self.size = 0
        for path in (self._before, self.path):
            if self._disk.exists(path):
                self._disk.unlink(path)
                self._disk.sync_dir(OWN_DIR)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> DiskFile:
        if self._file is None:
            self._disk.mkdir(OWN_DIR)
            self._is_unnamed = self._is_unnamed or not self._disk.exists(self.path)
            file = self._disk.open(self.path, create=True)
            try:
                if self._is_unnamed:
                    self._disk.sync_dir(OWN_DIR)
                    self._disk.sync_dir("")
            except BaseException:
                file.close()
                raise
            self._is_unnamed = False
            self._file = file
        return self._file


def _whole_entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = data.find(_MAGIC)
    while position >= 0:
        head = data[position : position + _HEAD.size]
        if len(head) < _HEAD.size:
            return
        _, length, crc = _HEAD.unpack(head)
        entry = data[position + _HEAD.size : position + _HEAD.size + length]
        if 0 < length == len(entry) and crc32(entry) == crc:
            yield position, entry
            position = data.find(_MAGIC, position + _HEAD.size + length)
        else:
            position = data.find(_MAGIC, position + 1)
