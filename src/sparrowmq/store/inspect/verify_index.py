"""Checking the index against the log: entries in the order of the log, chains and slots."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.java import positive_index_hash, unsigned_java_hash
from sparrowmq.protocol.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.store.index.entries import ENTRY, IndexLayout
from sparrowmq.store.index.index_file import IndexFile
from sparrowmq.store.index.index_recovery import (
    IndexDamaged,
    IndexMark,
    index_names,
    open_index_file,
)
from sparrowmq.store.inspect.verify_queues import FoundDamage
from sparrowmq.store.layout import INDEX_DIR

_CHUNK = 4096


class _Entry(NamedTuple):
    file: IndexFile
    number: int
    key_hash: int
    log_offset: int
    seconds: int

    @property
    def where(self) -> tuple[str, int]:
        return self.file.file.path, self.file.entry_at(self.number)


class IndexCheck:
    """All index files; `sure` is how far they are known to reach, None if the store was stopped."""

    def __init__(
        self,
        disk: Disk,
        layout: IndexLayout,
        found: FoundDamage,
        sure: int | None,
        log_begin: int,
        mark: IndexMark | None = None,
    ) -> None:
        self._found = found
        self._mark = mark
        self._sure = sure
        self._log_begin = log_begin
        self.files = self.entries = 0
        self.skipped: list[str] = []
        self._opened: list[IndexFile] = []
        self._is_complete = True
        for name in index_names(disk, INDEX_DIR):
            self._open(disk, f"{INDEX_DIR}/{name}", layout)
        self._opened.sort(key=lambda file: file.header.begin_log_offset)
        self._entries = self._all_entries()
        self._next = next(self._entries, None)
        self._first = self._next.log_offset if self._next is not None else None

    def _open(self, disk: Disk, path: str, layout: IndexLayout) -> None:
        if disk.size(path) != layout.file_size:
            if not self.skipped:
                self.skipped.append(
                    f"{path} is {disk.size(path)} bytes long, {layout.slots} slots and"
                    f" {layout.entries} entries make {layout.file_size}: say --index-slots and"
                    " --index-entries as the broker is configured"
                )
            self._is_complete = False
            return
        try:
            file = open_index_file(disk, path, layout, write=False)
        except IndexDamaged as error:
            self._found(path, 0, error.reason, self._sure is None)
            self._is_complete = False
        else:
            self._opened.append(file)
            mark = self._mark
            # After a crash the mark may count durable entries that the file does not count yet.
            if mark is not None and mark.name == file.name:
                file.header = max(mark.header, file.header, key=lambda header: header.count)
        self.files += 1

    def _all_entries(self) -> Iterator[_Entry]:
        for file in self._opened:
            slots = array("I", bytes(4 * file.layout.slots))
            for start in range(1, file.header.count, _CHUNK):
                data = file.read_entries(start, min(start + _CHUNK, file.header.count))
                for number, entry in enumerate(ENTRY.iter_unpack(data), start):
                    key_hash, log_offset, _, previous = entry
                    slot = key_hash % file.layout.slots
                    if previous != slots[slot]:
                        reason = f"entry {number} follows {previous}, expected {slots[slot]}"
                        self._found(file.file.path, file.entry_at(number), reason, True)
                    slots[slot] = number
                    self.entries += 1
                    yield _Entry(file, number, key_hash, log_offset, entry[2])
            self._check_slots(file, slots)
            file.file.close()

    def _check_slots(self, file: IndexFile, expected: "array[int]") -> None:
        # After a crash the slots of unsettled entries may be missing: the next start places them.
        slots, wanted = file.slots(), np.array(expected, "u4")
        for slot in np.flatnonzero(slots != wanted).tolist():
            reason = f"slot {slot} names entry {slots[slot]}, expected {wanted[slot]}"
            self._found(file.file.path, 40 + 4 * slot, reason, self._sure is None)
        used = int(np.count_nonzero(wanted))
        if used != file.header.used_slots:
            reason = f"counts {file.header.used_slots} used slots, there are {used}"
            self._found(file.file.path, 32, reason, self._sure is None)

    def record(self, record: Record) -> None:
        """The next entries must be this record's keys."""
        self._skip_to(record.log_offset)
        expected, optional = _hashes(record)
        found: list[int] = []
        entry = self._next
        while entry is not None and entry.log_offset == record.log_offset:
            found.append(entry.key_hash)
            if entry.key_hash not in expected and entry.key_hash not in optional:
                self._found(*entry.where, "a key the message does not have", True)
            self._check_time(entry, record.store_timestamp)
            entry = self._next = next(self._entries, None)
        missing = [key_hash for key_hash in expected if key_hash not in found]
        if missing and self._covers(record.log_offset):
            path = self._opened[-1].file.path if self._opened else INDEX_DIR
            is_late = self._sure is not None and record.log_offset >= self._sure
            reason = f"{len(missing)} keys of the message at log offset {record.log_offset} lack"
            self._found(path, 0, reason, not is_late)

    def _check_time(self, entry: _Entry, timestamp: int) -> None:
        header = entry.file.header
        seconds = min(max((timestamp - header.begin_time) // 1000, 0), 0x7FFFFFFF)
        # Apache counts the first entry's seconds from the end of the previous file.
        if entry.number == 1 and header.begin_time != timestamp:
            self._found(entry.where[0], 0, f"begins at {header.begin_time}, not {timestamp}", True)
        elif entry.number > 1 and entry.seconds != seconds:
            self._found(*entry.where, f"{entry.seconds} seconds, expected {seconds}", True)
        if entry.number == header.count - 1 and header.end_time != timestamp:
            reason = f"ends at {header.end_time}, its last message is of {timestamp}"
            self._found(entry.where[0], 8, reason, self._sure is None)

    def _covers(self, log_offset: int) -> bool:
        if not self._is_complete:
            return False
        # Older files were deleted with the log; a store without any index has all entries to come.
        return self._first is None or log_offset >= self._first

    def _skip_to(self, log_offset: int) -> None:
        while self._next is not None and self._next.log_offset < log_offset:
            # Entries before the first record of the log lead to deleted records.
            if self._next.log_offset >= self._log_begin:
                reason = f"leads to log offset {self._next.log_offset}, where no message is"
                self._found(*self._next.where, reason, True)
            self._next = next(self._entries, None)

    def finish(self, end: int) -> None:
        """Entries past the last record lead nowhere."""
        while self._next is not None:
            is_late = self._sure is not None and self._next.log_offset >= self._sure
            reason = f"leads to log offset {self._next.log_offset}, the log ends at {end}"
            self._found(*self._next.where, reason, not is_late)
            self._next = next(self._entries, None)


def _hashes(record: Record) -> tuple[list[int], set[int]]:
    properties = decode_properties(record.properties)
    keys = [properties.get(UNIQUE_KEY, ""), *properties.get(KEYS, "").split(KEY_SEPARATOR)]
    expected = [_hash(record.topic, key) for key in keys if key]
    # Since 5.4 Apache indexes the tag as well.
    return expected, {_hash(record.topic, f"T#{properties.get(TAGS, '')}")}


def _hash(topic: str, key: str) -> int:
    return positive_index_hash(unsigned_java_hash(f"{topic}#{key}"))
