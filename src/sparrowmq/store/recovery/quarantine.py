"""Quarantine: damaged bytes of the log are copied away, and their place is made valid.

Apache cuts a log at the first record it cannot read. A hole is therefore filled with a record of
exactly its size (rolled back, so that neither queue nor index of Apache takes it), or, where
it reaches to the end of a file, with the blank record that ends a file.
"""

from itertools import count

import msgspec

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record import Record, encode_blank, encode_record, topic_part
from sparrowmq.protocol.record_layout import MIN_RECORD_SIZE
from sparrowmq.protocol.sys_flag import TRANSACTION_ROLLBACK
from sparrowmq.store.layout import OWN_DIR, QUARANTINE_DIR, file_name, file_offset, log_path
from sparrowmq.store.recovery.log_scan import Hole

FILLER_TOPIC = "RMQ_SYS_DAMAGED"
_NO_HOST = bytes(8)
SMALLEST_FILLER = MIN_RECORD_SIZE + 1
_KEPT_AT_ONCE = 4 * 1024 * 1024


class DamagedPlace(msgspec.Struct, frozen=True, order=True):
    """Bytes of one log file that were damaged."""

    start: int
    end: int


def filler(log_offset: int, size: int) -> bytes:
    """A valid record of exactly `size` bytes that is never delivered; at least 92."""
    topic = FILLER_TOPIC[: max(1, size - MIN_RECORD_SIZE)]
    body = bytes(size - MIN_RECORD_SIZE - len(topic))
    return encode_record(
        topic_part(topic),
        queue_id=0,
        flag=0,
        queue_offset=0,
        log_offset=log_offset,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp=0,
        born_host=_NO_HOST,
        # Apache takes a file whose first record has no store time for one that was never written.
        store_timestamp=1,
        store_host=_NO_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=b"",
    )


def is_filler(record: Record) -> bool:
    """Whether this record only fills a place that was damaged."""
    return record.store_timestamp == 1 and FILLER_TOPIC.startswith(record.topic)


def place_of(name: str) -> DamagedPlace | None:
    """The place whose bytes are kept under this name; None for other names."""
    start, _, size = name.partition("-")
    offset = file_offset(start)
    if offset is None or not (size.isascii() and size.isdigit()):
        return None
    return DamagedPlace(offset, offset + int(size))


def filled_places(disk: Disk, file_size: int, log_end: int) -> list[DamagedPlace]:
    """Where the log was damaged and still has nothing but a filling, lowest first."""
    places = {place_of(name) for name in disk.listdir(QUARANTINE_DIR)}
    return [
        place
        for place in sorted(place for place in places if place is not None)
        if place.end <= log_end and is_filled(disk, file_size, place)
    ]


def is_filled(disk: Disk, file_size: int, place: DamagedPlace) -> bool:
    """Whether this place of the log holds what `fill` wrote there."""
    start, end = place.start, place.end
    path, file_end = log_path(start - start % file_size), start - start % file_size + file_size
    if not start < end <= file_end or not disk.exists(path):
        return False
    patch = _patch(start, end, file_end)
    file = disk.open(path, write=False)
    try:
        return file.read(start % file_size, len(patch)) == patch
    finally:
        file.close()


def free_path(disk: Disk, path: str) -> str:
    """That path, or one beside it if the path is already taken."""
    if not disk.exists(path):
        return path
    return next(other for n in count(1) if not disk.exists(other := f"{path}.{n}"))


def keep_aside(disk: Disk, file_size: int, start: int, end: int) -> str:
    """Copy log bytes from `start` to `end`, within one file, away; returns the copy's path."""
    path = free_path(disk, f"{QUARANTINE_DIR}/{file_name(start)}-{end - start}")
    disk.mkdir(QUARANTINE_DIR)
    source = disk.open(log_path(start - start % file_size), write=False)
    target = disk.open(path, create=True)
    try:
        for at in range(start, end, _KEPT_AT_ONCE):
            length = min(_KEPT_AT_ONCE, end - at)
            target.write(at - start, source.read(at % file_size, length))
        target.sync()
    finally:
        source.close()
        target.close()
    disk.sync_dir(QUARANTINE_DIR)
    disk.sync_dir(OWN_DIR)
    return path


def fill(disk: Disk, file_size: int, hole: Hole) -> list[str]:
    """Copy a hole's bytes away and make its place valid; returns the paths of the copies."""
    copies = []
    start = hole.start
    while start < hole.end:
        file_start = start - start % file_size
        end = min(hole.end, file_start + file_size)
        _make_whole(disk, file_start, file_size)
        copies.append(keep_aside(disk, file_size, start, end))
        file = disk.open(log_path(file_start))
        try:
            file.write(start - file_start, _patch(start, end, file_start + file_size))
            file.sync()
        finally:
            file.close()
        start = end
    return copies


def _patch(start: int, end: int, file_end: int) -> bytes:
    if end == file_end:
        return encode_blank(end - start)
    if end - start < SMALLEST_FILLER:
        # Nothing this small was ever a record; Apache cuts here, we continue after it.
        return bytes(end - start)
    return filler(start, end - start)


def _make_whole(disk: Disk, file_start: int, file_size: int) -> None:
    file = disk.open(log_path(file_start), create=True)
    try:
        if file.size() != file_size:
            file.truncate(file_size)
    finally:
        file.close()
