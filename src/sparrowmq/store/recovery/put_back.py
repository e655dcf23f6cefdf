"""Putting back what damage took from a log, when another copy of the log still has it.

```
start      recovery keeps the damaged bytes aside and fills their place (quarantine.py)
following  the place's bytes come from the master, are checked, and wait in a file: whole
next start the file becomes taken, its bytes go into the log, queues and index are rebuilt
```

The log is never cut for this: what only this copy has, after the damage, stays where it is. Bytes
that are whole go in only where the filling still lies, because a log that was cut meanwhile may
have other records there. From `taken` on they go in whatever lies there: a crash may have left a
part of them.
"""

from collections.abc import Iterator

from sparrowmq.clock import Zone
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record import RecordError, check_record
from sparrowmq.protocol.record_layout import BLANK, BLANK_MAGIC, MIN_RECORD_SIZE
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.layout import LOCK, OWN_DIR, QUARANTINE_DIR, file_name, log_path
from sparrowmq.store.messages import Report
from sparrowmq.store.recovery.quarantine import DamagedPlace, is_filled, is_filler, place_of
from sparrowmq.store.recovery.rebuild import check_strangers, rebuild_locked

_PART, _WHOLE, _TAKEN = ".part", ".whole", ".taken"
_AT_ONCE = 4 * 1024 * 1024


class Replacement:
    """The bytes of one damaged place, as they come from another copy of the log."""

    def __init__(self, disk: Disk, file_size: int, place: DamagedPlace) -> None:
        """Raises DiskFull or OSError, as all methods do, and StoreError where queues and index
        could not be rebuilt."""
        check_strangers(disk)
        self._disk = disk
        self._place = place
        self._file_end = place.start - place.start % file_size + file_size
        self._path = _path(place)
        self._rest = b""
        self._rest_at = self.next_offset = place.start
        """The log offset of the next byte to come."""
        self._is_past_records = False
        disk.mkdir(QUARANTINE_DIR)
        disk.unlink(self._path + _PART)
        self._file = disk.open(self._path + _PART, create=True)

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self._place.end - self.next_offset

    def add(self, data: bytes) -> None:
        """Take the next bytes. Raises RecordError if they are not records that belong here."""
        self._file.write(self.next_offset - self._place.start, data)
        self.next_offset += len(data)
        if not self._is_past_records:
            self._rest += data
            self._check()

    def _check(self) -> None:
        at = 0
        while len(self._rest) - at >= BLANK.size:
            position = self._rest_at + at
            size, magic = BLANK.unpack_from(self._rest, at)
            ends_file = size == self._file_end - position == self._place.end - position
            if magic == BLANK_MAGIC and ends_file and position > self._place.start:
                self._is_past_records, self._rest = True, b""
                return
            if (
                MIN_RECORD_SIZE <= size <= self._place.end - position
                and len(self._rest) < at + size
            ):
                break
            if is_filler(check_record(self._rest, at, position)):
                raise RecordError(position, "is damaged there, too")
            at += size
        self._rest, self._rest_at = self._rest[at:], self._rest_at + at

    def finish(self) -> None:
        """Make the bytes durable for the next start. Raises RecordError if a record is cut off."""
        if self._rest or self.missing:
            raise RecordError(self._rest_at, "the records do not end where the damage ends")
        self._file.sync()
        self._disk.replace(self._path + _PART, self._path + _WHOLE)
        for directory in (QUARANTINE_DIR, OWN_DIR):
            self._disk.sync_dir(directory)

    def close(self) -> None:
        """Release the file, and drop what is not complete."""
        self._file.close()
        self._disk.unlink(self._path + _PART)


def put_back(
    disk: Disk, config: StoreConfig, now_ms: int, report: Report, *, zone: Zone
) -> list[DamagedPlace]:
    """Put bytes that wait into a copy's log, and rebuild its queues and index; returns their
    places. The next call completes what a crash interrupted.

    Raises StoreLocked, StoreError, StoreCorrupted, DiskFull or OSError.
    """
    places = list(_waiting(disk, _WHOLE)) + list(_waiting(disk, _TAKEN))
    if not places:
        return []
    disk.mkdir("")
    lock = disk.lock(LOCK)
    try:
        for place in _waiting(disk, _WHOLE):
            if is_filled(disk, config.log_file_size, place):
                disk.replace(_path(place) + _WHOLE, _path(place) + _TAKEN)
            else:
                disk.unlink(_path(place) + _WHOLE)
        disk.sync_dir(QUARANTINE_DIR)
        places = list(_waiting(disk, _TAKEN))
        for place in places:
            _copy_in(disk, config.log_file_size, place)
        if places:
            rebuild_locked(disk, config, now_ms, report, zone=zone, is_copy=True)
        for place in places:
            disk.unlink(_path(place) + _TAKEN)
        disk.sync_dir(QUARANTINE_DIR)  # or a power cut brings them back, perhaps to another log
    finally:
        lock.release()
    return places


def _waiting(disk: Disk, suffix: str) -> Iterator[DamagedPlace]:
    for name in sorted(disk.listdir(QUARANTINE_DIR)):
        place = place_of(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if place is not None:
            yield place


def _copy_in(disk: Disk, file_size: int, place: DamagedPlace) -> None:
    source = disk.open(_path(place) + _TAKEN, write=False)
    target = disk.open(log_path(place.start - place.start % file_size))
    try:
        for at in range(0, place.end - place.start, _AT_ONCE):
            target.write(place.start % file_size + at, source.read(at, _AT_ONCE))
        target.sync()
    finally:
        source.close()
        target.close()


def _path(place: DamagedPlace) -> str:
    return f"{QUARANTINE_DIR}/{file_name(place.start)}-{place.end - place.start}"
