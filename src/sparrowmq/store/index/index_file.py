"""One index file, written entry by entry and in rounds of syncs.

A power cut must never leave a slot that leads to a missing entry: the whole chain after it would be
lost. Entries are therefore written at once, but their slots only when a sync has made the entries
durable; until then the slots in memory are authoritative. The file advances in rounds, one sync
each:

```
begin_round   this sync will cover everything appended so far
end_round     entries durable: header and slots may name them (place_slots)
next round    the slots are durable too: the entries are settled
```

So whatever a crash leaves, header and slots only name durable entries. Going back to the durable
entries means walking backwards through the later ones, and placing the slots of unsettled ones
again.
"""

import mmap
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from sparrowmq.disk.disk import Disk, DiskFile, Words
from sparrowmq.disk.errors import DiskError, DiskFull
from sparrowmq.store.index.entries import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    KeyEntries,
)

_PLACE_BATCH = 4096
_MAX_SECONDS = 0x7FFFFFFF
_FIRST = 0x80000000
"""Added to a slot's number if the entry is its first; no slot number is this high."""
_ENTRIES = np.dtype(
    [("key_hash", ">u4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">u4")]
)
"""An array of `ENTRY`."""


class IndexFile:
    """An open index file; `header` is authoritative, the one in the file may be older."""

    def __init__(self, file: DiskFile, layout: IndexLayout) -> None:
        self.file = file
        self.layout = layout
        self.header = IndexHeader.decode(file.read(0, HEADER_SIZE))
        self.durable = self.settled = self.header
        self._written = self._syncing = self._covering = self.header
        self._placed = self.header.count
        """Slots of entries before this one are in the file."""
        self._unplaced: Words = np.empty(0, "u4")
        """The slots of later entries, marked where the entry is the slot's first."""
        self.durable_header = self.header
        """The header that the file is sure to hold."""
        self._slots: Words | None = None
        """All slots, for a file that is not settled: 20 MB at RocketMQ's size."""

    @staticmethod
    def create(disk: Disk, path: str, layout: IndexLayout) -> "IndexFile":
        """A new, empty file whose slots cannot fail for want of space. Raises DiskFull, OSError.

        Its name is not durable yet: syncing the directory here would hold up the loop.
        """
        disk.mkdir(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        try:
            file.truncate(layout.file_size)
            file.reserve(0, layout.entries_at)
        except (OSError, DiskError):
            file.close()
            disk.unlink(path)
            raise
        made = IndexFile(file, layout)
        # Not read back: 20 MB of zeros blocked the loop for 20 ms, and longer on a busy machine.
        made._slots = _zeros(layout.slots)
        return made

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return self.layout.entries - self.header.count

    @property
    def is_settled(self) -> bool:
        """Whether entries, slots and header are on the disk."""
        return self.settled.count == self.header.count and self.durable_header == self.header

    @property
    def has_unplaced(self) -> bool:
        """Whether the slots of some entries are not in the file yet."""
        return self._placed < self.header.count

    def append(self, entries: KeyEntries) -> None:
        """Write one or more, which must fit. On an error nothing has changed."""
        header = self.header
        slots, end = self.slots(), header.count + entries.count
        begin_time = header.begin_time if header.count > 1 else int(entries.timestamps[0])
        numbers: Words = np.arange(header.count, end, dtype="u4")
        places: Words = entries.key_hashes % np.uint32(self.layout.slots)
        before = slots[places]
        previous = _chain(slots, places, numbers, before)
        data = np.empty(entries.count, _ENTRIES)
        data["key_hash"] = entries.key_hashes
        data["log_offset"] = entries.log_offsets
        data["seconds"] = ((entries.timestamps - begin_time) // 1000).clip(0, _MAX_SECONDS)
        data["previous"] = previous
        try:
            self.file.write(self.entry_at(header.count), data.tobytes())
        except (OSError, DiskError):
            slots[places] = before
            raise
        marked = np.where(previous == 0, places | np.uint32(_FIRST), places)
        self._unplaced = np.concatenate((self._unplaced, marked))
        self.header = IndexHeader(
            begin_time,
            int(entries.timestamps[-1]),
            header.begin_log_offset if header.count > 1 else int(entries.log_offsets[0]),
            int(entries.log_offsets[-1]),
            header.used_slots + int(np.count_nonzero(previous == 0)),
            end,
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
            # be found; the header first, because RocketMQ treats a slot beyond the count as empty.
            self._count_entries(int(np.count_nonzero(marked >= _FIRST)), end)
            numbers = np.arange(start, end, dtype="u4")
            self.file.write_words(HEADER_SIZE, marked & np.uint32(_FIRST - 1), numbers)
            self._unplaced = self._unplaced[end - start :]
            self._placed = end
        return stop - first

    def _count_entries(self, first_in_slot: int, end: int) -> None:
        """Let the file's header count the durable entries, up to number `end` - 1."""
        self._write_header(
            IndexHeader(
                self.durable.begin_time,
                # RocketMQ, starting after a crash, destroys a file whose end time is ahead of the
                # checkpoint. So the end time written here is the one settled a round ago.
                self.settled.end_time,
                self.durable.begin_log_offset,
                self.read_entry(end - 1)[1],
                self._written.used_slots + first_in_slot,
                end,
            )
        )

    def settle(self) -> None:
        """Run rounds until everything is on the disk."""
        while self.begin_round():
            self.file.sync()
            self.end_round()

    def prepare(self) -> None:
        """Get ready for writing now, not when the first message comes."""
        with suppress(DiskFull):
            # Slots in reserved space are written through a map, others through the descriptor.
            self.file.reserve(0, self.layout.entries_at)
        self.slots()

    def read_slots_ahead(self) -> None:
        """Let the device load the slots that are not in memory. For a worker: it may wait.

        Slots are written at random places, through a map, and each page that has left memory blocks
        the writer until the device has read it: 20 ms for a few, 40 to 130 ms on a busy device.
        """
        with suppress(OSError):  # the file was closed meanwhile
            self.file.read_ahead(0, self.layout.entries_at)

    def slots(self) -> Words:
        """Every slot, as it must be for the entries in memory."""
        if self._slots is None:
            data = self.file.read(HEADER_SIZE, self.layout.slots * SLOT_SIZE)
            self._slots = _zeros(self.layout.slots)
            self._slots[:] = np.frombuffer(data, ">u4")
        return self._slots

    def newest_in_slot(self, slot: int) -> int:
        """Number of the newest entry in a slot, 0 if it has none."""
        if self._slots is not None:
            return int(self._slots[slot])
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

        The log offset is -1 for an entry of another hash in the same slot. Entry numbers that do
        not decrease end the chain: a damaged file must not loop.
        """
        number, above = self.newest_in_slot(key_hash % self.layout.slots), self.header.count
        begin_time = self.header.begin_time
        while 0 < number < above:
            above = number
            found, log_offset, seconds, number = self.read_entry(number)
            yield (log_offset if found == key_hash else -1), begin_time + seconds * 1000

    def reset(self, header: IndexHeader, changed: dict[int, int]) -> None:
        """Go back to `header`, with `changed` slots; zeros replace what lies past its entries."""
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
        self._unplaced = self._unplaced[:0]

    def _write_header(self, header: IndexHeader) -> None:
        if header != self._written:
            self.file.write(0, header.encode())
            self._written = header


def _zeros(count: int) -> Words:
    """Slots in memory that is returned to the system with them: on the heap, those of a full file
    leave a hole of 20 MB for as long as the broker runs."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # on Windows, where files are only read
        return np.zeros(count, "u4")
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, count * SLOT_SIZE, flags=private), "u4")


def _chain(slots: Words, places: Words, numbers: Words, before: Words) -> Words:
    """Let slots name new entries; returns the entry that each of these follows in its slot."""
    slots[places] = numbers  # if a place occurs twice, the last one stays
    if np.array_equal(slots[places], numbers):
        return before
    order = np.argsort(places, kind="stable")
    follows = places[order[1:]] == places[order[:-1]]
    previous = before.copy()
    previous[order[1:][follows]] = numbers[order[:-1][follows]]
    return previous
