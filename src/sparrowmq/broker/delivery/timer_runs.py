"""Pending timers on disk: sorted runs, and the list of them that counts.

```
sparrowmq/timer/<first queue offset>   magic 8, CRC of the entries 4, then entries of 16 bytes:
                                       time in ms 8, queue offset 8 (highest bit: a recall), sorted
sparrowmq/timer/<…>.<copy>             another run that begins at the same offset
sparrowmq/timer/runs.json              which runs there are, and how far the queue is in them
```

All of it is derived from the timer queue: what is missing or damaged is read from there again.
"""

from collections.abc import Sequence

import msgspec

from sparrowmq.protocol.crc import crc32
from sparrowmq.store.disk import Disk, DiskFile
from sparrowmq.store.draft import write_draft
from sparrowmq.store.layout import OWN_DIR, file_name, file_offset

TIMER_DIR = f"{OWN_DIR}/timer"
ENTRY = 16
_MAGIC = b"SPTIMER1"
_HEAD = len(_MAGIC) + 4
_BLOCK = 256
"""Entries read at once: 4 KiB."""
_LIST = f"{TIMER_DIR}/runs.json"


class RunRange(msgspec.Struct, array_like=True, frozen=True):
    """Queue offsets that one run stands for."""

    first: int
    end: int
    copy: int = 0
    """Tells it from others that begin at the same offset; each has a file of its own."""


class RunList(msgspec.Struct):
    """What runs.json says: offsets before `covered` are in a run, or done."""

    covered: int = 0
    runs: list[RunRange] = msgspec.field(default_factory=list)


class Run:
    """A sorted run, read from its beginning to its end. Entries are whole numbers:
    time in the upper, offset in the lower 64 bits."""

    __slots__ = ("_at", "_block", "_count", "_disk", "range")

    def __init__(self, disk: Disk, span: RunRange, size_bytes: int) -> None:
        self.range = span
        self._disk = disk
        self._count = (size_bytes - _HEAD) // ENTRY
        self._at = 0
        self._block: list[int] = []

    def seek(self, entry: int) -> None:
        """Go on with the first entry at or behind this one."""
        low, high = 0, self._count
        file = self._disk.open(_path(self.range), write=False)
        while low < high:
            middle = (low + high) // 2
            if self._read(file, middle, 1)[0] < entry:
                low = middle + 1
            else:
                high = middle
        file.close()
        self._at = low
        self._block = []

    def next(self) -> int | None:
        """The next entry; None at the end."""
        if not self._block and self._at < self._count:
            # Opened for each block: hundreds of runs would hold as many descriptors.
            file = self._disk.open(_path(self.range), write=False)
            self._block = self._read(file, self._at, _BLOCK)
            file.close()
            self._block.reverse()
            self._at += len(self._block)
        return self._block.pop() if self._block else None

    def skip(self, count: int) -> None:
        """Leave the first entries of a run out that nobody has read yet."""
        self._at = count

    def rest(self) -> list[int]:
        """What `next` has yet to return, without returning it."""
        file = self._disk.open(_path(self.range), write=False)
        rest = self._read(file, self._at, self._count - self._at)
        file.close()
        return self._block[::-1] + rest

    @property
    def left(self) -> int:
        """Entries that `next` has yet to return."""
        return self._count - self._at + len(self._block)

    def _read(self, file: DiskFile, index: int, count: int) -> list[int]:
        count = min(count, self._count - index)
        data = file.read(_HEAD + index * ENTRY, count * ENTRY)
        return [int.from_bytes(data[at : at + ENTRY], "big") for at in range(0, len(data), ENTRY)]


class RunFiles:
    """The directory of runs."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load_list(self) -> RunList:
        """The list as last saved; an empty one if there is none that can be read."""
        try:
            file = self._disk.open(_LIST, write=False)
        except FileNotFoundError:
            return RunList()
        data = file.read(0, file.size())
        file.close()
        try:
            return msgspec.json.decode(data, type=RunList)
        except msgspec.MsgspecError:
            return RunList()

    def save_list(self, runs: RunList) -> None:
        """Durable when it returns. Raises DiskFull, or OSError."""
        self._replace(_LIST, msgspec.json.encode(runs))

    def remove_list(self) -> None:
        """No run counts any more; durable when it returns."""
        self._disk.unlink(_LIST)
        self._disk.sync_dir(TIMER_DIR)

    def write(self, span: RunRange, entries: Sequence[int]) -> None:
        """Make a run of sorted entries, durably; it counts when a list names it."""
        body = b"".join([entry.to_bytes(ENTRY, "big") for entry in entries])
        self._replace(_path(span), _MAGIC + crc32(body).to_bytes(4, "big") + body)

    def open(self, span: RunRange, *, check: bool) -> Run | None:
        """A run; None if it is missing or damaged."""
        try:
            file = self._disk.open(_path(span), write=False)
        except FileNotFoundError:
            return None
        head, size = file.read(0, _HEAD), file.size()
        is_whole = head[: len(_MAGIC)] == _MAGIC and (size - _HEAD) % ENTRY == 0
        if is_whole and check:
            is_whole = crc32(file.read(_HEAD, size)) == int.from_bytes(head[-4:], "big")
        file.close()
        return Run(self._disk, span, size) if is_whole else None

    def remove(self, span: RunRange) -> None:
        """Delete a run that no list names any more."""
        self._disk.unlink(_path(span))

    def remove_strangers(self, runs: RunList) -> None:
        """Delete runs, and drafts of them, that the list does not name."""
        named = {_path(span) for span in runs.runs}
        for name in self._disk.listdir(TIMER_DIR):
            is_run = file_offset(name.partition(".")[0]) is not None
            if is_run and f"{TIMER_DIR}/{name}" not in named:
                self._disk.unlink(f"{TIMER_DIR}/{name}")

    def _replace(self, path: str, data: bytes) -> None:
        if not self._disk.exists(TIMER_DIR):
            self._disk.mkdir(TIMER_DIR)
            self._disk.sync_dir(OWN_DIR)
        self._disk.replace(write_draft(self._disk, path, data), path)
        self._disk.sync_dir(TIMER_DIR)


def _path(span: RunRange) -> str:
    return f"{TIMER_DIR}/{file_name(span.first)}{f'.{span.copy}' if span.copy else ''}"
