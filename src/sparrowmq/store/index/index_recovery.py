"""Opening the key index after a stop or a crash, from its mark and its files.

The mark records how far the index was last known to be on the disk, so that a start continues from
there. It has two slots of 512 bytes, written in turn, each with a CRC: a torn write leaves the
other one. An old mark is as valid as a new one; it only makes the next start repeat more.

```
sequence 8, safe log offset 8, is clean 1, file name 17, its header 40, linked 4,
oldest file's name 17, files 4, CRC32 of all that 4
```

Entries past the mark, and those of records that the log lost, are removed. They are derived
from the log, so a file that cannot be trusted is dropped and rebuilt rather than repaired.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.crc import crc32
from sparrowmq.store.index.entries import ENTRY, HEADER_SIZE, IndexHeader, IndexLayout
from sparrowmq.store.index.index_file import IndexFile

_MARK = struct.Struct(f">qqB17s{HEADER_SIZE}sI17sI")
_CRC = struct.Struct(">I")
_SLOT_SIZE = 512
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class IndexMark:
    """What is on the disk: all files before `name`, and the entries of `name` in `header`."""

    safe_log_offset: int
    """Start of a record; all entries of the records before it are on the disk."""
    is_clean: bool
    """The store was stopped and nothing was missing."""
    name: str
    """The newest index file with something on the disk, empty if there is none."""
    header: IndexHeader
    linked: int
    """Slots of entries before this one are on the disk as well."""
    oldest: str
    """Name of the oldest file, and …"""
    files: int
    """… how many there are from it up to `name`: if one is missing, the others go too."""


class IndexMarkFile:
    """The file with the two slots; opened when first used."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._file: DiskFile | None = None
        self._sequence = 0

    def read(self) -> IndexMark | None:
        """The newest intact mark, None if there is none."""
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
        """Close the file."""
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


class IndexDamaged(Exception):
    """An index file that cannot be trusted; as it is derived, it is dropped and rebuilt."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def index_names(disk: Disk, directory: str) -> list[str]:
    """The names in an index directory that are index files."""
    return [name for name in disk.listdir(directory) if len(name) == 17 and name.isdecimal()]


def load_index_files(
    disk: Disk, directory: str, layout: IndexLayout
) -> tuple[list[IndexFile], list[str]]:
    """The files in the order of the log, and what was wrong: those from there on are removed."""
    damage: list[str] = []
    files: list[IndexFile] = []
    for name in index_names(disk, directory):
        path = f"{directory}/{name}"
        try:
            if not damage:
                files.append(open_index_file(disk, path, layout))
                continue
        except IndexDamaged as error:
            damage.append(str(error))
        disk.unlink(path)
    # Not in the order of names: Apache's carry local time, and clocks go back.
    files.sort(key=lambda file: (file.header.begin_log_offset, file.name))
    kept: list[IndexFile] = []
    for file in files:
        follows = not kept or file.header.begin_log_offset >= kept[-1].header.end_log_offset
        if file.header.count > 1 and follows:
            kept.append(file)
        else:
            remove_index_file(disk, file)
    return kept, damage


def remove_index_file(disk: Disk, file: IndexFile) -> None:
    """Close and delete it."""
    file.file.close()
    disk.unlink(file.file.path)


def open_index_file(disk: Disk, path: str, layout: IndexLayout, *, write: bool = True) -> IndexFile:
    """Open one file whose size, header, first and last entry agree. Raises IndexDamaged."""
    file = disk.open(path, write=write)
    try:
        if file.size() != layout.file_size:
            raise IndexDamaged(path, f"{file.size()} bytes long, must be {layout.file_size}")
        index = IndexFile(file, layout)
        _check_header(index, path)
    except IndexDamaged:
        file.close()
        raise
    return index


def _check_header(index: IndexFile, path: str) -> None:
    header, layout = index.header, index.layout
    if header.count > layout.entries:
        raise IndexDamaged(path, f"counts {header.count} entries, {layout.entries} fit")
    if header.count == 1:
        return
    if not 0 < header.used_slots <= min(layout.slots, header.count - 1):
        raise IndexDamaged(path, f"{header.used_slots} used slots, {header.count - 1} entries")
    first, last = index.read_entry(1)[1], index.read_entry(header.count - 1)[1]
    if (first, last) != (header.begin_log_offset, header.end_log_offset):
        raise IndexDamaged(
            path,
            f"entries reach from log offset {first} to {last}, the header says"
            f" {header.begin_log_offset} to {header.end_log_offset}",
        )


def first_entry_from(file: IndexFile, log_offset: int) -> int:
    """Number of the first entry at a log offset or later; the count when there is none."""
    low, high = 1, file.header.count
    while low < high:
        middle = (low + high) // 2
        if file.read_entry(middle)[1] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


def cut_index_file(file: IndexFile, header: IndexHeader, linked: int) -> None:
    """Remove all entries that `header` does not count. Raises IndexDamaged.

    Entries were durable before a slot or the header named them, so following them backwards
    restores each slot, also of entries that the file's own header does not count yet. Slots of
    entries from `linked` on may not have arrived and are placed again.
    """
    stop = _end_of_entries(file)
    slots = file.slots()
    newest = int(slots.max())
    if newest >= stop:
        raise IndexDamaged(file.file.path, f"a slot names entry {newest}, {stop - 1} is the last")
    changed: dict[int, int] = {}
    for number, (key_hash, _, _, previous) in _entries_backwards(file, header.count, stop):
        slot = key_hash % file.layout.slots
        if changed.get(slot, int(slots[slot])) == number:
            changed[slot] = previous if previous < number else 0
    for start in range(linked, header.count, _CHUNK):
        entries = file.read_entries(start, min(start + _CHUNK, header.count))
        for number, entry in enumerate(ENTRY.iter_unpack(entries), start):
            changed[entry[0] % file.layout.slots] = number
    file.reset(header, changed)


def _entries_backwards(
    file: IndexFile, first: int, stop: int
) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    while stop > first:
        start = max(first, stop - _CHUNK)
        entries = list(ENTRY.iter_unpack(file.read_entries(start, stop)))
        for number in range(stop - 1, start - 1, -1):
            yield number, entries[number - start]
        stop = start


def _end_of_entries(file: IndexFile) -> int:
    """Where the entries end: there may be some past the header's count."""
    stop = file.header.count
    before = file.header.end_log_offset
    while stop < file.layout.entries:
        until = min(stop + _CHUNK, file.layout.entries)
        for _, log_offset, _, previous in ENTRY.iter_unpack(file.read_entries(stop, until)):
            if log_offset < before or log_offset == 0 or previous >= stop:
                return stop
            before = log_offset
            stop += 1
    return stop


def header_before(file: IndexFile, log_offset: int) -> IndexHeader:
    """The header without the entries at a log offset and later.

    Its end time is that of the last entry left, in whole seconds rather than exact.
    """
    header, count = file.header, first_entry_from(file, log_offset)
    if count <= 1:
        return IndexHeader()
    used_slots = header.used_slots
    for _, entry in _entries_backwards(file, count, header.count):
        used_slots -= not entry[3]
    _, last_log_offset, seconds, _ = file.read_entry(count - 1)
    return replace(
        header,
        end_time=header.begin_time + seconds * 1000,
        end_log_offset=last_log_offset,
        used_slots=used_slots,
        count=count,
    )
