"""Timers on disk: how far they have been delivered, and the pending ones as sorted runs.

config/timercheck, one page, written in place:

```
 0  last read time 8        Apache's: slots before it have been delivered
 8  timer log position 8    0: we keep no timer log
16  queue offset 8, again at 24   where Apache continues reading the timer queue
64  magic 4, time 8, queue offset 8, CRC 4      ours, the newest mark
88  15 x (time 8, queue offset 8), CRC 4        older ones that cover more; zeros for none
```

A mark (time, queue offset) says that every message before that offset and due by that time is
delivered: later messages may be due earlier if the clock is set back. Then a new mark begins, and
the old one stays valid until the clock has passed it:

```
time │ ######...........  old mark          # delivered
     │ ######...........                    . pending, or not stored yet
     │ #############....  new mark
     └──────────────────── queue offset
```

sparrowmq/timer, all derived from the timer queue: missing or damaged files are rebuilt from it.

```
<first queue offset>   magic 8, CRC of the entries 4, then entries of 16 bytes:
                       time in ms 8, queue offset 8 (highest bit: a recall), sorted
<…>.<copy>             another run that begins at the same offset
runs.json              which runs there are, and how far the queue is in them
```
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.protocol.crc import crc32
from sparrowmq.store.layout import CONFIG_DIR, OWN_DIR, file_name

# ---- config/timercheck


MOST_MARKS = 16
"""They all fit one sector. After more steps back than that, some messages may be redelivered."""
_PATH = f"{CONFIG_DIR}/timercheck"
_SIZE = 4096
_APACHE = struct.Struct(">qqqq")
_OWN = struct.Struct(">4sqq")
_OWN_AT = 64
_CHECK_MAGIC = b"SPT1"
_OLDER = struct.Struct(">30q")
_OLDER_AT = _OWN_AT + _OWN.size + 4


class TimerMark(NamedTuple):
    """Everything due by `time_ms` that lies before `queue_offset` has been delivered."""

    time_ms: int
    queue_offset: int

    def covers(self, time_ms: int, queue_offset: int) -> bool:
        """Whether a message has been delivered."""
        return time_ms <= self.time_ms and queue_offset < self.queue_offset

    def within(self, queue_end: int) -> TimerMark:
        """The mark limited to a queue that ends at `queue_end`."""
        return TimerMark(self.time_ms, min(self.queue_offset, queue_end))


class TimerCheck:
    """The file. Everything in it fits one sector, so that it is written whole or not at all."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> list[TimerMark]:
        """Our marks and Apache's, if there are any; all are valid."""
        try:
            file = self._disk.open(_PATH, write=False)
        except FileNotFoundError:
            return []
        data = file.read(0, _SIZE)
        file.close()
        marks = []
        own = data[_OWN_AT : _OWN_AT + _OWN.size]
        end = _OWN_AT + _OWN.size
        if own[:4] == _CHECK_MAGIC and data[end : end + 4] == crc32(own).to_bytes(4, "big"):
            marks.append(TimerMark(*_OWN.unpack(own)[1:]))
            marks += _older(data[_OLDER_AT:])
        if len(data) >= _APACHE.size:
            read_ms, _, queue_offset, _ = _APACHE.unpack_from(data)
            marks.append(TimerMark(read_ms, queue_offset))
        return marks

    def save(
        self, marks: Sequence[TimerMark], first_pending: int, due_ms: int | None = None
    ) -> None:
        """Save up to `MOST_MARKS`, the newest last; durable when this returns.

        Messages before `first_pending` that are still pending, because Apache's timer log has them,
        are due at `due_ms` or later: earlier than the marks if the clock was set back.

        Raises DiskFull, or OSError.
        """
        is_new = not self._disk.exists(_PATH)
        if is_new:
            self._disk.mkdir(CONFIG_DIR)
        file = self._disk.open(_PATH, create=True)
        try:
            if is_new:
                file.truncate(_SIZE)
            *older, newest = marks
            own = _OWN.pack(_CHECK_MAGIC, *newest)
            read_ms = newest.time_ms if due_ms is None else min(newest.time_ms, due_ms - 1)
            read_ms = max(0, read_ms) // 1000 * 1000
            page = _APACHE.pack(read_ms, 0, first_pending, first_pending).ljust(_OWN_AT, b"\0")
            numbers = [number for mark in older for number in mark]
            rest = _OLDER.pack(*numbers, *[0] * (2 * (MOST_MARKS - 1) - len(numbers)))
            file.write(0, page + _with_crc(own) + _with_crc(rest))
            file.sync()
        finally:
            file.close()
        if is_new:
            self._disk.sync_dir(CONFIG_DIR)


def _with_crc(data: bytes) -> bytes:
    return data + crc32(data).to_bytes(4, "big")


def _older(data: bytes) -> list[TimerMark]:
    block = data[: _OLDER.size]
    if len(block) < _OLDER.size or not data.startswith(_with_crc(block)):
        return []
    numbers = _OLDER.unpack(block)
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [TimerMark(*pair) for pair in pairs if any(pair)]


# ---- sorted runs


TIMER_DIR = f"{OWN_DIR}/timer"
ENTRY = 16
_RUN_MAGIC = b"SPTIMER1"
_HEAD = len(_RUN_MAGIC) + 4
_BLOCK = 256
"""Entries read at once: 4 KiB."""
_LIST = f"{TIMER_DIR}/runs.json"
_RUN_NAME = re.compile(r"[0-9]{20}(\.[0-9]+)?(\.tmp)?")
"""Of a run, or of its draft; other files are not ours."""


class RunRange(msgspec.Struct, array_like=True, frozen=True):
    """The queue offsets that one run covers."""

    first: int
    end: int
    copy: int = 0
    """Distinguishes runs that begin at the same offset; each has a separate file."""


class RunList(msgspec.Struct):
    """The contents of runs.json: offsets before `covered` are in a run or done."""

    covered: int = 0
    runs: list[RunRange] = msgspec.field(default_factory=list)


class RunFiles:
    """The directory of runs."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load_list(self) -> RunList:
        """The list as last saved; an empty one if there is none or it is unreadable."""
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
        """Invalidate all runs; durable when this returns."""
        self._disk.unlink(_LIST)
        self._disk.sync_dir(TIMER_DIR)

    def write(self, span: RunRange, entries: Sequence[int]) -> None:
        """Write a run of sorted entries, durably; it becomes valid when a list names it."""
        body = b"".join([entry.to_bytes(ENTRY, "big") for entry in entries])
        self._replace(_path(span), _RUN_MAGIC + crc32(body).to_bytes(4, "big") + body)

    def open(self, span: RunRange, *, check: bool) -> TimerRun | None:
        """A run; None if it is missing or damaged."""
        try:
            file = self._disk.open(_path(span), write=False)
        except FileNotFoundError:
            return None
        head, size = file.read(0, _HEAD), file.size()
        is_whole = head[: len(_RUN_MAGIC)] == _RUN_MAGIC and (size - _HEAD) % ENTRY == 0
        if is_whole and check:
            is_whole = crc32(file.read(_HEAD, size)) == int.from_bytes(head[-4:], "big")
        file.close()
        return TimerRun(self._disk, span, size) if is_whole else None

    def remove(self, span: RunRange) -> None:
        """Delete a run that no list names any more."""
        self._disk.unlink(_path(span))

    def remove_unlisted(self, runs: RunList) -> None:
        """Delete runs that the list does not name, and their drafts."""
        named = {_path(span) for span in runs.runs}
        for name in self._disk.listdir(TIMER_DIR):
            if _RUN_NAME.fullmatch(name) and f"{TIMER_DIR}/{name}" not in named:
                self._disk.unlink(f"{TIMER_DIR}/{name}")

    def _replace(self, path: str, data: bytes) -> None:
        AtomicFile(self._disk, path).replace(data)


class TimerRun:
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
        """Continue with the first entry at or after this one."""
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
            # Open it for each block: hundreds of runs would otherwise hold as many descriptors.
            file = self._disk.open(_path(self.range), write=False)
            self._block = self._read(file, self._at, _BLOCK)
            file.close()
            self._block.reverse()
            self._at += len(self._block)
        return self._block.pop() if self._block else None

    def skip(self, count: int) -> None:
        """Skip the first entries of a run that has not been read yet."""
        self._at = count

    def rest(self) -> list[int]:
        """The entries that `next` has yet to return, without consuming them."""
        file = self._disk.open(_path(self.range), write=False)
        rest = self._read(file, self._at, self._count - self._at)
        file.close()
        return self._block[::-1] + rest

    def last(self) -> int:
        """The entry that is due last, whether or not `next` has returned it."""
        file = self._disk.open(_path(self.range), write=False)
        (last,) = self._read(file, self._count - 1, 1)
        file.close()
        return last

    @property
    def left(self) -> int:
        """The number of entries that `next` has yet to return."""
        return self._count - self._at + len(self._block)

    def _read(self, file: DiskFile, index: int, count: int) -> list[int]:
        count = min(count, self._count - index)
        data = file.read(_HEAD + index * ENTRY, count * ENTRY)
        return [int.from_bytes(data[at : at + ENTRY], "big") for at in range(0, len(data), ENTRY)]


def _path(span: RunRange) -> str:
    return f"{TIMER_DIR}/{file_name(span.first)}{f'.{span.copy}' if span.copy else ''}"
