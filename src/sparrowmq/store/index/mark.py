"""How far the key index was on the disk at last, so that a start after a crash goes on from there.

Two slots of 512 bytes, written in turn, each with a CRC: a torn write leaves the other one. An old
mark is as true as a new one, it only makes the next start repeat more.

```
sequence 8, safe log offset 8, is clean 1, file name 17, its header 40, linked 4,
oldest file's name 17, files 4, CRC32 of all that 4
```
"""

import struct
from dataclasses import dataclass

from sparrowmq.protocol.crc import crc32
from sparrowmq.store.disk import Disk, DiskFile
from sparrowmq.store.index.layout import HEADER_SIZE, IndexHeader

_MARK = struct.Struct(f">qqB17s{HEADER_SIZE}sI17sI")
_CRC = struct.Struct(">I")
_SLOT_SIZE = 512


@dataclass(frozen=True, slots=True)
class IndexMark:
    """What is on the disk: the files before `name`, and of that one what `header` counts."""

    safe_log_offset: int
    """Start of a record; everything of the records before it is on the disk."""
    is_clean: bool
    """The store was stopped and nothing was missing."""
    name: str
    """The newest index file with something on the disk, empty if there is none."""
    header: IndexHeader
    linked: int
    """Slots of entries before this one are on the disk, too."""
    oldest: str
    """Name of the oldest file, and …"""
    files: int
    """… how many there are from it up to `name`: one that is missing takes the others along."""


class IndexMarkFile:
    """The file with the two slots; opened when first used."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._file: DiskFile | None = None
        self._sequence = 0

    def read(self) -> IndexMark | None:
        """The newest whole mark, None where there is none."""
        try:
            file = self._disk.open(self.path, write=False)
        except FileNotFoundError:
            return None
        data = file.read(0, 2 * _SLOT_SIZE)
        file.close()
        slots = (_decode(data[:_SLOT_SIZE]), _decode(data[_SLOT_SIZE:]))
        found = [slot for slot in slots if slot is not None]
        if not found:
            return None
        self._sequence, newest = max(found, key=lambda slot: slot[0])
        return newest

    def write(self, mark: IndexMark) -> None:
        """Write the older slot; durable when the file has been synced."""
        self._sequence += 1
        data = _MARK.pack(
            self._sequence,
            mark.safe_log_offset,
            mark.is_clean,
            mark.name.encode(),
            mark.header.encode(),
            mark.linked,
            mark.oldest.encode(),
            mark.files,
        )
        at = self._sequence % 2 * _SLOT_SIZE
        self._open().write(at, data + _CRC.pack(crc32(data)))

    def sync(self) -> None:
        """Return when the mark is durable."""
        self._open().sync()

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> DiskFile:
        if self._file is None:
            directory = self.path.rpartition("/")[0]
            self._disk.mkdir(directory)
            is_new = not self._disk.exists(self.path)
            self._file = self._disk.open(self.path, create=True)
            if is_new:
                self._file.reserve(0, 2 * _SLOT_SIZE)
                self._disk.sync_dir(directory)
                self._disk.sync_dir(directory.rpartition("/")[0])
        return self._file


def _decode(slot: bytes) -> tuple[int, IndexMark] | None:
    data = slot[: _MARK.size]
    if len(slot) < _MARK.size + _CRC.size or not any(data):
        return None
    if _CRC.unpack_from(slot, _MARK.size)[0] != crc32(data):
        return None
    sequence, safe_log_offset, is_clean, name, header, linked, oldest, files = _MARK.unpack(data)
    mark = IndexMark(
        safe_log_offset,
        bool(is_clean),
        name.rstrip(b"\x00").decode(),
        IndexHeader.decode(header),
        linked,
        oldest.rstrip(b"\x00").decode(),
        files,
    )
    return sequence, mark
