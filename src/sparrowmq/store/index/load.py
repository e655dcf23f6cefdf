"""Opening index files, and taking the newest entries out again when the log does not have them."""

from collections.abc import Iterator
from dataclasses import replace

from sparrowmq.store.disk import Disk
from sparrowmq.store.index.index_file import IndexFile
from sparrowmq.store.index.layout import ENTRY, IndexHeader, IndexLayout

_CHUNK = 4096


class IndexDamaged(Exception):
    """An index file that cannot be trusted; it is derived, so it is dropped and built anew."""

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
    # Names do not decide the order: Apache's carry local time, and clocks go back.
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
    """Number of the first entry at or behind a log offset; the count when there is none."""
    low, high = 1, file.header.count
    while low < high:
        middle = (low + high) // 2
        if file.read_entry(middle)[1] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


def cut_index_file(file: IndexFile, header: IndexHeader, linked: int) -> None:
    """Take out all entries that `header` does not count. Raises IndexDamaged.

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
    """Where the entries end: behind the header's count may lie some that it does not know of."""
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
    """What the header counts when entries at or behind a log offset are taken out.

    Its end time is a whole second of the last entry left, not the exact one.
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
