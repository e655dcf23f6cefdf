"""Walking through the log record by record, telling damage from the end of the log.

```
record record ????? record record 0000     damage: something valid follows, it is skipped
record record record 00?0                  a torn tail: nothing valid follows, the log ends there
```
"""

from collections.abc import Iterator
from typing import Protocol, TypeAlias

import msgspec

from sparrowmq.protocol.record import Record, RecordError, check_record
from sparrowmq.protocol.record_layout import (
    BLANK,
    BLANK_MAGIC,
    CRC_HEAD,
    CRC_PROPERTY_SIZE,
    MAGIC_BYTES,
    MIN_RECORD_SIZE,
)
from sparrowmq.protocol.record_outline import RecordOutline, outline_run

_WINDOW = 4 * 1024 * 1024


class LogBytes(Protocol):
    """Reads of the log that may wait for the device."""

    def read_blocking(self, log_offset: int, length: int) -> bytes:
        """Bytes of one file, fewer at its end, none if it is missing."""
        ...


class Hole(msgspec.Struct, frozen=True):
    """Bytes from `start` to `end` are not records; with `is_tail` nothing valid follows."""

    start: int
    end: int
    reason: str
    is_tail: bool = False


class FileEnd(msgspec.Struct, frozen=True):
    """A blank record at `position` ends the file; the log continues at `next_start`."""

    position: int
    next_start: int


Found: TypeAlias = Record | Hole | FileEnd
Outlined: TypeAlias = RecordOutline | Hole | FileEnd


class LogScan:
    """Reads records from `start` on, through a window of the file."""

    def __init__(
        self, log: LogBytes, file_size: int, starts: list[int], *, sure: int, look_ahead: int
    ) -> None:
        self._log = log
        self._file_size = file_size
        self._starts = starts
        self._sure = sure
        """Records reach at least to here; if not, they are damaged."""
        self._look_ahead = look_ahead
        """How far past `sure` the next record is searched for after a bad one."""
        self._window = b""
        self._window_at = 0

    def run(self, start: int, stop: int | None = None) -> Iterator[Found]:
        """Everything from `start` on, up to `stop` or to a tail: records, file ends and holes."""
        position: int | None = start
        while position is not None and (stop is None or position < stop):
            found = self._at(position)
            yield found
            position = _after(found)

    def outlines(self, start: int, stop: int | None = None) -> Iterator[Outlined]:
        """`run` for a caller that needs no bodies: it cuts the time of a start to 60 %."""
        position: int | None = start
        while position is not None and (stop is None or position < stop):
            ordinary = self._ordinary(position, stop)
            if ordinary:
                yield from ordinary
                position = ordinary[-1].log_offset + ordinary[-1].size
                continue
            found = self._at(position)
            yield RecordOutline.of(found) if isinstance(found, Record) else found
            position = _after(found)

    def _ordinary(self, position: int, stop: int | None) -> list[RecordOutline]:
        """The records from `position` on that can be read together."""
        data, at = self._bytes(position, MIN_RECORD_SIZE)
        limit = position - position % self._file_size + self._file_size - BLANK.size
        return outline_run(data, at, position, limit if stop is None else min(limit, stop))

    def _at(self, position: int) -> Found:
        found = self._seen_at(position)
        if isinstance(found, Hole) and not found.is_tail:
            # A broker may have written on since the window was read: what follows was looked for in
            # the file. It writes in order, so what is still a hole now is one.
            self._window = b""
            found = self._seen_at(position)
        return found

    def _seen_at(self, position: int) -> Found:
        file_end = position - position % self._file_size + self._file_size
        try:
            data, at = self._bytes(position, MIN_RECORD_SIZE)
            if len(data) - at >= BLANK.size:
                size, magic = BLANK.unpack_from(data, at)
                if magic == BLANK_MAGIC and size == file_end - position:
                    return FileEnd(position, file_end)
                if MIN_RECORD_SIZE <= size <= file_end - position - BLANK.size:
                    data, at = self._bytes(position, size)
            record = check_record(data, at, position)
            if _lost_its_end(record, is_sure=position < self._sure):
                raise RecordError(position, "its end was never written")
        except RecordError as error:
            return self._hole(position, file_end, error.reason)
        return record

    def _bytes(self, position: int, length: int) -> tuple[bytes, int]:
        """A buffer with `length` bytes from `position` on, or fewer if the file ends before."""
        at = position - self._window_at
        if at < 0 or at + length > len(self._window):
            left = self._file_size - position % self._file_size
            self._window = self._log.read_blocking(position, min(left, max(length, _WINDOW)))
            self._window_at, at = position, 0
        return self._window, at

    def _hole(self, position: int, file_end: int, reason: str) -> Hole:
        limit = file_end if position < self._sure else min(file_end, position + self._look_ahead)
        following = self._next_valid(position + 1, limit)
        if following is not None:
            return Hole(position, following, reason)
        for start in self._starts:
            if start < file_end:
                continue
            if self._is_valid(start):
                return Hole(position, start, reason)
            # Damage may cross the boundary: look inside for records known to exist.
            if start < self._sure:
                following = self._next_valid(start, start + self._file_size)
                if following is not None:
                    return Hole(position, following, reason)
        if position < self._sure:
            return Hole(position, self._sure, reason)
        return Hole(position, position, reason, is_tail=True)

    def _next_valid(self, position: int, limit: int) -> int | None:
        while position < limit:
            data = self._log.read_blocking(position, min(_WINDOW, limit - position))
            if len(data) < BLANK.size:
                return None
            for at in [] if is_zero(data) else _magic_positions(data):
                if at >= 4 and self._is_valid(position + at - 4):
                    return position + at - 4
            # Windows overlap, so that a size and its magic are found together.
            position += max(1, len(data) - BLANK.size + 1)
        return None

    def _is_valid(self, position: int) -> bool:
        left = self._file_size - position % self._file_size
        head = self._log.read_blocking(position, BLANK.size)
        if len(head) < BLANK.size:
            return False
        size = BLANK.unpack(head)[0]
        if not MIN_RECORD_SIZE <= size <= left - BLANK.size:
            return False
        try:
            check_record(self._log.read_blocking(position, size), 0, position)
        except RecordError:
            return False
        return True


_ZEROS = bytes(_WINDOW)


def is_zero(data: bytes) -> bool:
    """Whether all bytes are zero; compares memory, which is faster than a loop over bytes."""
    if len(data) <= _WINDOW:
        return data == _ZEROS[: len(data)]
    return all(is_zero(data[at : at + _WINDOW]) for at in range(0, len(data), _WINDOW))


def last_byte(log: LogBytes, start: int, end: int) -> int:
    """The offset just past the last byte from `start` to `end` that is not zero, else `start`."""
    last = start
    for at in range(start, end, _WINDOW):
        data = log.read_blocking(at, min(_WINDOW, end - at))
        if not is_zero(data):
            last = at + len(data.rstrip(b"\0"))
    return last


def _after(found: Found) -> int | None:
    """Where the log continues; None at its end."""
    match found:
        case Record():
            return found.log_offset + found.size
        case FileEnd():
            return found.next_start
        case Hole(is_tail=True):
            return None
        case Hole():
            return found.end


def _lost_its_end(record: Record, *, is_sure: bool) -> bool:
    """Whether a power cut or a truncated file took topic or properties, which then read as zeros.

    A record with a whole-record CRC is complete, even if a property holds a zero. In others the
    body's CRC says nothing about what follows the body. After the last sync single sectors may be
    missing, elsewhere only everything from some point on.
    """
    if record.properties[-CRC_PROPERTY_SIZE:].startswith(CRC_HEAD):
        return False
    if is_sure:
        return record.properties[-1:] == b"\0" or record.topic[-1:] == "\0"
    return b"\0" in record.properties or "\0" in record.topic


def _magic_positions(data: bytes) -> list[int]:
    found = []
    for magic in MAGIC_BYTES:
        at = data.find(magic)
        while at >= 0:
            found.append(at)
            at = data.find(magic, at + 1)
    return sorted(found)
