"""Index files of a killed process, read by a broker that does not know our mark."""

import numpy as np

from sparrowmq.store.index.entries import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    KeyEntries,
)
from sparrowmq.store.index.index_file import IndexFile
from sparrowmq.testing.recording_disk import RecordingDisk

LAYOUT = IndexLayout(slots=40, entries=500)
PATH = "index/20231114221320355"


def reachable(data: bytes, count: int) -> set[int]:
    """The entries that the file's own slots lead to, as RocketMQ follows them."""
    found: set[int] = set()
    for slot in range(LAYOUT.slots):
        at = HEADER_SIZE + slot * SLOT_SIZE
        number = int.from_bytes(data[at : at + SLOT_SIZE], "big")
        assert number < count, "RocketMQ takes such a slot for empty and loses its chain"
        while number:
            found.add(number)
            entry = LAYOUT.entries_at + number * ENTRY_SIZE
            number = ENTRY.unpack(data[entry : entry + ENTRY_SIZE])[3]
    return found


def test_a_file_counts_exactly_the_entries_that_its_slots_lead_to() -> None:
    disk = RecordingDisk()
    file = IndexFile.create(disk, PATH, LAYOUT)
    for number in range(8):
        offset = number * 30
        hashes, offsets = np.arange(offset, offset + 210, 7), np.arange(offset + 1, offset + 31)
        file.append(KeyEntries(hashes.astype("u4"), offsets, np.full(30, 1_000)))
        for step in (file.begin_round, file.file.sync, file.end_round, lambda: file.place_slots(9)):
            step()
            data = disk.files()[PATH]
            count = IndexHeader.decode(data[:HEADER_SIZE]).count
            assert reachable(data, count) == set(range(1, count))
    assert count > 1
