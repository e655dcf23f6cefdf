"""One index file: RocketMQ's hash table from keys to log offsets, in a file of fixed size.

```
header 40   begin time 8, end time 8, begin log offset 8, end log offset 8, used slots 4, count 4
slots       4 bytes each: number of the newest entry whose key hash falls into the slot, 0 = none
entries     20 bytes each: key hash 4, log offset 8, seconds since begin time 4, previous entry 4
```

Entry numbers start at 1, so `count` is the number of the next entry and a file for 20,000,000 holds
one less. All numbers are big-endian.

A power cut must never leave a slot that leads to an entry which is not there: the whole chain
behind it would be lost. Entries are therefore written at once, but their slots only when a sync has
made the entries durable; until then the slots in memory are the truth. The file moves forward in
rounds, one sync each:

```
begin_round   what was appended so far will be covered by this sync
end_round     entries durable: header and slots may name them (place_slots)
next round    the slots are durable too: the entries are settled
```

So whatever a crash leaves, header and slots name durable entries only. Going back to the durable
entries means walking those behind them backwards, and placing the slots of those that are not
settled once more.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sparrowmq.store.disk import Disk, DiskFile
from sparrowmq.store.errors import DiskFull, StoreError

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">IqiI")
_PLACE_BATCH = 4096
_SIGN = 0x80000000
_MAX_SECONDS = 0x7FFFFFFF
_FIRST = 0x80000000
"""Marks a slot whose first entry this is; there are never so many slots."""

if TYPE_CHECKING:
    Slots: TypeAlias = array[int]  # array is not subscriptable at run time before Python 3.12

KeyEntry: TypeAlias = tuple[int, int, int]
"""Unsigned key hash, log offset, store timestamp."""


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first 40 bytes of an index file."""

    begin_time: int = 0
    end_time: int = 0
    begin_log_offset: int = 0
    end_log_offset: int = 0
    used_slots: int = 0
    count: int = 1
    """Number of the next entry."""

    @staticmethod
    def decode(data: bytes) -> "IndexHeader":
        """A header that was never written is all zeros and counts as empty."""
        header = IndexHeader(*HEADER.unpack(data))
        return header if header.count > 0 else replace(header, count=1)

    def encode(self) -> bytes:
        return HEADER.pack(
            self.begin_time,
            self.end_time,
            self.begin_log_offset,
            self.end_log_offset,
            self.used_slots,
            self.count,
        )


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How many slots and entries each index file has; RocketMQ's maxHashSlotNum, maxIndexNum."""

    slots: int = 5_000_000
    entries: int = 20_000_000

    def __post_init__(self) -> None:
        if self.slots < 1 or self.entries < 2:
            raise ValueError(f"{self.slots} slots, {self.entries} entries: need 1 and 2 at least")

    @property
    def entries_at(self) -> int:
        return HEADER_SIZE + self.slots * SLOT_SIZE

    @property
    def file_size(self) -> int:
        return self.entries_at + self.entries * ENTRY_SIZE


class IndexFile:
    """An open index file; `header` is the truth in memory, the file's own may lie behind."""

    def __init__(self, file: DiskFile, layout: IndexLayout) -> None:
        self.file = file
        self.layout = layout
        self.header = IndexHeader.decode(file.read(0, HEADER_SIZE))
        self.durable = self.settled = self.header
        self._written = self._syncing = self._covering = self.header
        self._placed = self.header.count
        """Slots of entries before this one are in the file."""
        self._unplaced = array("I")
        """The slots of the entries from there on, marked where the entry is the slot's first."""
        self.durable_header = self.header
        """What the file itself says, for sure."""
        self._slots: Slots | None = None
        """All slots, for a file that is not settled: 20 MB at RocketMQ's size."""

    @staticmethod
    def create(disk: Disk, path: str, layout: IndexLayout) -> "IndexFile":
        """A new, empty file whose slots cannot fail for want of space. Raises DiskFull, OSError."""
        directory = path.rpartition("/")[0]
        disk.mkdir(directory)
        file = disk.open(path, create=True)
        try:
            file.truncate(layout.file_size)
            file.reserve(0, layout.entries_at)
            disk.sync_dir(directory)
            disk.sync_dir(directory.rpartition("/")[0])
        except (OSError, StoreError):
            file.close()
            disk.unlink(path)
            raise
        return IndexFile(file, layout)

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return self.layout.entries - self.header.count

    @property
    def is_settled(self) -> bool:
        """Entries, slots and header are on the disk."""
        return self.settled.count == self.header.count and self.durable_header == self.header

    def append(self, keys: Sequence[KeyEntry]) -> None:
        """Write entries for all `keys`, which must fit. On an error nothing has changed."""
        header = self.header
        number, used = header.count, header.used_slots
        begin_time = header.begin_time if number > 1 else keys[0][2]
        slots, slot_count = self.slots(), self.layout.slots
        pack = ENTRY.pack
        entries: list[bytes] = []
        marked: list[int] = []
        put, mark = entries.append, marked.append
        time_before, seconds = -1, 0
        for key_hash, log_offset, timestamp in keys:
            if key_hash >= _SIGN:
                key_hash = (0x100000000 - key_hash) & 0x7FFFFFFF  # |MIN_VALUE| is stored as 0
            slot = key_hash % slot_count
            previous = slots[slot]
            if previous:
                mark(slot)
            else:
                used += 1
                mark(slot | _FIRST)
            if timestamp != time_before:
                time_before = timestamp
                seconds = min(max((timestamp - begin_time) // 1000, 0), _MAX_SECONDS)
            put(pack(key_hash, log_offset, seconds, previous))
            slots[slot] = number
            number += 1
        try:
            self.file.write(self.entry_at(header.count), b"".join(entries))
        except (OSError, StoreError):
            for entry in reversed(entries):
                key_hash, _, _, previous = ENTRY.unpack(entry)
                slots[key_hash % slot_count] = previous
            raise
        self._unplaced.extend(marked)
        begin_log_offset = header.begin_log_offset if header.count > 1 else keys[0][1]
        self.header = IndexHeader(
            begin_time, keys[-1][2], begin_log_offset, keys[-1][1], used, number
        )

    def begin_round(self) -> bool:
        """Prepare a sync of the file; False when there is nothing to sync."""
        if self.is_settled:
            if not self.room:
                self._slots = None
            return False
        self.place_slots(None)
        if self.settled.count == self.header.count:
            self._write_header(self.header)
        self._covering, self._syncing = self.durable, self.header
        return True

    def end_round(self) -> None:
        """The sync that `begin_round` announced has succeeded."""
        self.durable_header = self._written
        self.durable = self._syncing
        self.settled = self._covering

    def place_slots(self, limit: int | None) -> int:
        """Write slots whose entries are durable, at most `limit`; returns how many."""
        first, stop = self._placed, self.durable.count
        if limit is not None:
            stop = min(stop, first + limit)
        for start in range(first, stop, _PLACE_BATCH):
            end = min(start + _PLACE_BATCH, stop)
            marked = self._unplaced[: end - start]
            # Both together, so that a killed process leaves RocketMQ a file that counts what can
            # be found; the header first, because it takes a slot beyond the count for empty.
            self._count_entries(marked, end)
            slots = [slot & ~_FIRST for slot in marked]
            self.file.write_words(HEADER_SIZE, slots, range(start, end))
            del self._unplaced[: end - start]
            self._placed = end
        return stop - first

    def _count_entries(self, marked: "Slots", end: int) -> None:
        """Let the file's header count entries that are durable, up to number `end` - 1."""
        used_slots = self._written.used_slots + sum([slot >= _FIRST for slot in marked])
        self._write_header(
            IndexHeader(
                self.durable.begin_time,
                # RocketMQ, starting after a crash, destroys a file whose end time is ahead of the
                # checkpoint. So the end time written here is the one settled a round ago.
                self.settled.end_time,
                self.durable.begin_log_offset,
                self.read_entry(end - 1)[1],
                used_slots,
                end,
            )
        )

    def settle(self) -> None:
        """Run rounds until everything is on the disk."""
        while self.begin_round():
            self.file.sync()
            self.end_round()

    def prepare(self) -> None:
        """Be ready to be written, now and not when the first message comes."""
        with suppress(DiskFull):
            # Slots in reserved space are written through a map. Without space they are not.
            self.file.reserve(0, self.layout.entries_at)
        self.slots()

    def slots(self) -> "Slots":
        """Every slot, as the entries in memory want it."""
        if self._slots is None:
            slots = array("I")
            slots.frombytes(self.file.read(HEADER_SIZE, self.layout.slots * SLOT_SIZE))
            if sys.byteorder == "little":
                slots.byteswap()
            self._slots = slots
        return self._slots

    def newest_in_slot(self, slot: int) -> int:
        """Number of the newest entry in a slot, 0 if it has none."""
        if self._slots is not None:
            return self._slots[slot]
        return int.from_bytes(self.file.read(HEADER_SIZE + slot * SLOT_SIZE, SLOT_SIZE), "big")

    def read_entries(self, first: int, stop: int) -> bytes:
        """The bytes of entries `first` to `stop` - 1."""
        return self.file.read(self.entry_at(first), (stop - first) * ENTRY_SIZE)

    def read_entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, log offset, seconds and previous entry of one entry."""
        key_hash, log_offset, seconds, previous = ENTRY.unpack(
            self.file.read(self.entry_at(number), ENTRY_SIZE)
        )
        return key_hash, log_offset, seconds, previous

    @property
    def name(self) -> str:
        """Its file name: the time of its first entry."""
        return self.file.path.rpartition("/")[2]

    def entry_at(self, number: int) -> int:
        """Where an entry lies in the file."""
        return self.layout.entries_at + number * ENTRY_SIZE

    def chain(self, key_hash: int) -> Iterator[tuple[int, int]]:
        """The entries in a key hash's slot, newest first: log offset and time in whole seconds.

        The log offset is -1 where the slot is shared with another hash. Entry numbers that do not
        fall end it: a damaged file must not loop.
        """
        number, above = self.newest_in_slot(key_hash % self.layout.slots), self.header.count
        begin_time = self.header.begin_time
        while 0 < number < above:
            above = number
            found, log_offset, seconds, number = self.read_entry(number)
            yield (log_offset if found == key_hash else -1), begin_time + seconds * 1000

    def reset(self, header: IndexHeader, changed: dict[int, int]) -> None:
        """Go back to `header`, with `changed` slots; what lies behind its entries becomes zeros."""
        slots = self.slots()
        self.file.truncate(self.entry_at(header.count))
        self.file.truncate(self.layout.file_size)
        self.file.reserve(0, self.layout.entries_at)
        for slot, number in changed.items():
            slots[slot] = number
            self.file.write(HEADER_SIZE + slot * SLOT_SIZE, number.to_bytes(4, "big"))
        self.file.write(0, header.encode())
        self.file.sync()
        self.header = self.durable = self.settled = self.durable_header = header
        self._written = self._syncing = self._covering = header
        self._placed = header.count
        del self._unplaced[:]

    def _write_header(self, header: IndexHeader) -> None:
        if header != self._written:
            self.file.write(0, header.encode())
            self._written = header
