"""The latest commit of each group and queue, where the kernel keeps it when the broker is killed.

A commit is written here before it is answered, into a map of reserved space: that costs a fifth of
a microsecond, and no system call. The journal of consumer offsets, which is synced, follows within
a second. Two files take turns, so that each stays small:

```
save of the table ─▶ begin: commits go to the other file ─▶ table is durable ─▶ clear: the first
                                                             file is emptied, and is the next
file    magic 4, zeros up to 16, records
record  offset 8, its complement 8              rewritten in place by each commit
        generation 8, rewind 8, queue 8, length of the key 4, CRC32 of all this 4
        `topic@group`, zeros up to a multiple of 16
```

A place gets a new record in each file, and after each rewind. Later records count, and what a file
says is merged with table and journal (`replication/table_rules.py`), so that a file may be replayed
that should have been emptied. Nothing is synced: after a power cut, any part may be missing.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.disk.atomic_file import read_file
from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.disk.errors import DiskError
from sparrowmq.protocol.crc import crc32
from sparrowmq.store.layout import OWN_DIR
from sparrowmq.store.messages import Damage

PATHS = (f"{OWN_DIR}/commits.0", f"{OWN_DIR}/commits.1")
_MAGIC = b"SPC1"
_ALIGNED = 16
"""No sector's end divides an offset from its complement."""
_OFFSET = struct.Struct("<qq")
_PLACE = struct.Struct("<qqqI")
_CRC = struct.Struct("<I")
_HEAD_BYTES = _OFFSET.size + _PLACE.size + _CRC.size
_LEAST_BYTES = 64 * 1024
_STEP_BYTES = 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
"""A limit for a file; half a million places."""
_NO_RECORD = 0
"""The position of places whose record is not to be written again."""
Place = tuple[str, int]


class _SlotFile:
    """One of the two files."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.file: DiskFile | None = None
        self.places: dict[Place, int] = {}
        """Where the record of a place begins."""
        self._disk = disk
        self._generation = 0
        self._end = 0
        self._size = 0

    def clear(self, generation: int) -> None:
        """Empty it, and reserve as much space as it took before. Raises DiskFull, or OSError."""
        if self.file is None:
            self._disk.mkdir(OWN_DIR)
            self.file = self._disk.open(self.path, create=True)
        size = _LEAST_BYTES
        while size < self._end:
            size *= 2
        self.file.truncate(0)
        self.file.reserve(0, size)
        self.file.write(0, _MAGIC)
        self.places = {}
        self._generation, self._end, self._size = generation, _ALIGNED, size

    def add(self, place: Place, offset: int, rewind: int) -> bool:
        """A new record; False without space for it. Raises DiskFull, or OSError."""
        key, queue_id = place
        name = key.encode()
        fields = _PLACE.pack(self._generation, rewind, queue_id, len(name))
        record = b"".join(
            (_OFFSET.pack(offset, ~offset), fields, _CRC.pack(crc32(fields + name)), name)
        )
        end = self._end + _aligned(len(record))
        if self.file is None or end > _MOST_BYTES:
            return False
        if end > self._size:
            step = min(max(self._size, end - self._size), _STEP_BYTES)
            self.file.reserve(self._size, step)
            self._size += step
        self.file.write(self._end, record)
        self.places[place] = self._end
        self._end = end
        return True

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


class CommitSlots:
    """Both files. `replay` comes first; nothing is kept before `clear` was called."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._current, self._other = (_SlotFile(disk, path) for path in PATHS)
        self._is_open = False
        self._other_has_commits = True
        self._is_full = False
        self._generation = 0
        # Those of the current file, as this is looked at for nearly every pull.
        self._places = self._current.places
        self._file = self._current.file

    def replay(self, report: Callable[[Damage], None]) -> list[OffsetChange]:
        """What the files say, the latest last."""
        found = list(_records(self._disk, report))
        self._generation = max((generation for generation, _ in found), default=0)
        return _in_order(found)

    def discard(self) -> None:
        """Forget all: the table was written by a broker that did not know it."""
        for path in PATHS:
            if self._disk.exists(path):
                self._disk.unlink(path)
                self._disk.sync_dir(OWN_DIR)

    def update(self, place: Place, offset: int) -> bool:
        """Keep a commit; False when it needs a record: `add` it."""
        position = self._places.get(place, _NO_RECORD)
        if position == _NO_RECORD or self._file is None:
            return False
        self._file.write(position, _OFFSET.pack(offset, ~offset))
        return True

    def add(self, place: Place, offset: int, rewind: int) -> None:
        """Keep a commit, or a removal (-1), in a new record, if there is space for it.

        A full or broken disk is not reported here: the journal, which follows, does.
        """
        if self._is_open and not self._is_full:
            try:
                self._is_full = not self._current.add(place, offset, rewind)
            except (DiskError, OSError):
                self._is_full = True

    def has(self, place: Place) -> bool:
        """Whether a file says something about this place."""
        return place in self._places or place in self._other.places

    def rewound(self, place: Place) -> None:
        """The next commit of this place needs a new record."""
        if place in self._places:
            self._places[place] = _NO_RECORD

    def begin(self) -> None:
        """The table is about to be saved with all that is here: let commits go to the other file,
        unless that one still has some."""
        if self._is_open and self._current.places and not self._other_has_commits:
            self._current, self._other = self._other, self._current
            self._other_has_commits = True
            self._use_current()

    def clear(self) -> None:
        """All that was here at the last `begin` is durable elsewhere: empty that file. It has no
        other user, so that a worker may do it. Raises OSError."""
        if self._other_has_commits or not self._is_open:
            with suppress(DiskError):  # with too little space: again after the next save
                # The other one last: it has the higher number when commits go there.
                for file in (*([] if self._is_open else [self._current]), self._other):
                    self._generation += 1
                    file.clear(self._generation)
                self._other_has_commits = False

    def cleared(self) -> None:
        """The loop's part of `clear`."""
        if not self._other_has_commits and not self._is_open:
            self._is_open = True
            self._use_current()

    def close(self) -> None:
        """Close the files."""
        self._is_open = False
        self._current.close()
        self._other.close()
        self._file, self._places = None, {}

    def _use_current(self) -> None:
        self._file, self._places = self._current.file, self._current.places
        self._is_full = False


def read_commits(disk: Disk) -> list[OffsetChange]:
    """What the files of a broker that may be running say, the latest last."""
    return _in_order(list(_records(disk, lambda damage: None)))


def _in_order(found: list[tuple[int, OffsetChange]]) -> list[OffsetChange]:
    found.sort(key=lambda record: record[0])
    # A slave's removals have no number: only their place in the order tells that they are later.
    latest = {(change.key, change.queue_id): change for _, change in found}
    return list(latest.values())


def _records(disk: Disk, report: Callable[[Damage], None]) -> Iterator[tuple[int, OffsetChange]]:
    """Generation and content of each whole record. Skips a torn tail and reports damage."""
    for path in PATHS:
        data = (read_file(disk, path) or b"").rstrip(b"\0")
        data += bytes(_aligned(len(data)) - len(data))
        position = end = _ALIGNED
        while position < len(data):
            found = _record_at(data, position)
            if found is None:
                position += _ALIGNED
                continue
            if position > end:
                report(Damage(path, end, position - end, "no valid record", "left out"))
            generation, change, length = found
            yield generation, change
            position += length
            end = position


def _record_at(data: bytes, position: int) -> tuple[int, OffsetChange, int] | None:
    head = data[position : position + _HEAD_BYTES]
    if len(head) < _HEAD_BYTES:
        return None
    offset, complement = _OFFSET.unpack_from(head)
    generation, rewind, queue_id, name_length = _PLACE.unpack_from(head, _OFFSET.size)
    name = data[position + _HEAD_BYTES : position + _HEAD_BYTES + name_length]
    fields = head[_OFFSET.size : -_CRC.size]
    if len(name) < name_length or head[-_CRC.size :] != _CRC.pack(crc32(fields + name)):
        return None
    if complement != ~offset:
        return None
    change = OffsetChange(name.decode(), queue_id, offset, False, rewind)
    return generation, change, _aligned(_HEAD_BYTES + name_length)


def _aligned(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED
