"""How far delivery times have been delivered: config/timercheck, one page, written in place.

```
 0  last read time 8        Apache's: slots before it have been delivered
 8  timer log position 8    0: there is no timer log of ours
16  queue offset 8, again at 24   where Apache goes on reading the timer queue
64  magic 4, time 8, queue offset 8, CRC 4      ours, the newest mark
88  15 x (time 8, queue offset 8), CRC 4        older ones, which say more; zeros for none
```

A mark (time, queue offset) says that every message due by that time is delivered, as far as it lies
before that offset: what comes later may be due earlier when the clock is set back. A new mark is
begun then, and the old one stays true until the clock has passed it:

    time │ ######...........  old mark          # delivered
         │ ######...........                    . pending, or not stored yet
         │ #############....  new mark
         └──────────────────── queue offset
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from sparrowmq.protocol.crc import crc32
from sparrowmq.store.disk import Disk
from sparrowmq.store.layout import CONFIG_DIR

_PATH = f"{CONFIG_DIR}/timercheck"
_SIZE = 4096
_APACHE = struct.Struct(">qqqq")
_OWN = struct.Struct(">4sqq")
_OWN_AT = 64
_MAGIC = b"SPT1"
_OLDER = struct.Struct(">30q")
_OLDER_AT = _OWN_AT + _OWN.size + 4
MOST_MARKS = 16
"""All in one sector. More steps back than that, and the oldest of them may repeat something."""


class TimerMark(NamedTuple):
    """Everything due by `time_ms` that lies before `queue_offset` has been delivered."""

    time_ms: int
    queue_offset: int

    def covers(self, time_ms: int, queue_offset: int) -> bool:
        """Whether a message has been delivered."""
        return time_ms <= self.time_ms and queue_offset < self.queue_offset

    def within(self, queue_end: int) -> "TimerMark":
        """What it says of a queue that ends there."""
        return TimerMark(self.time_ms, min(self.queue_offset, queue_end))


class TimerCheck:
    """The file. Everything in it fits one sector, so that it is written whole or not at all."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> list[TimerMark]:
        """Our marks and Apache's, as far as there are any; all are true."""
        try:
            file = self._disk.open(_PATH, write=False)
        except FileNotFoundError:
            return []
        data = file.read(0, _SIZE)
        file.close()
        marks = []
        own = data[_OWN_AT : _OWN_AT + _OWN.size]
        end = _OWN_AT + _OWN.size
        if own[:4] == _MAGIC and data[end : end + 4] == crc32(own).to_bytes(4, "big"):
            marks.append(TimerMark(*_OWN.unpack(own)[1:]))
            marks += _older(data[_OLDER_AT:])
        if len(data) >= _APACHE.size:
            read_ms, _, queue_offset, _ = _APACHE.unpack_from(data)
            marks.append(TimerMark(read_ms, queue_offset))
        return marks

    def save(
        self, marks: Sequence[TimerMark], first_pending: int, due_ms: int | None = None
    ) -> None:
        """Save up to `MOST_MARKS`, the newest last; durable when it returns.

        Messages before `first_pending` that are pending all the same, because Apache's timer log
        has them, are due at `due_ms` or later: earlier than the marks, if the clock was set back.

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
            own = _OWN.pack(_MAGIC, *newest)
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
