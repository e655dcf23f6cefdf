"""Reading a store's files from outside: live, stopped, copied or damaged."""

from pathlib import Path

import pytest

from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.protocol.record import Record
from sparrowmq.store.errors import StoreCorrupted
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.recovery.log_scan import FileEnd, Hole
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, flush, message, number_of, open_store


def filled(disk: RecordingDisk, count: int = 200) -> RecordingDisk:
    store = open_store(disk)
    for number in range(count):
        store.append(message(number, queue_id=number % 2), number)
    store.tick(1)
    flush(store, disk)
    return disk


def test_all_records_of_a_live_store_are_read_in_order() -> None:
    files = StoreFiles(filled(RecordingDisk()))
    assert [number_of(record) for record in files.records()] == list(range(200))
    assert files.log_file_size() == SMALL.log_file_size
    assert files.queues() == [("orders", 0), ("orders", 1)]


def test_a_scan_tells_records_file_ends_and_the_tail_apart() -> None:
    files = StoreFiles(filled(RecordingDisk()))
    found = list(files.scan())
    kinds = [type(one) for one in found]
    assert kinds.count(Record) == 200
    assert kinds.count(FileEnd) == len(files.log_starts()) - 1
    assert isinstance(found[-1], Hole)
    assert found[-1].is_tail


def test_what_a_broker_writes_while_its_log_is_read_is_no_hole() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    store.append(message(0), 0)
    found = []
    for one in StoreFiles(disk).scan():
        found.append(one)
        if len(found) < 30:
            number = len(found)
            store.append(message(number), number)
            store.append(message(100 + number), number)
    assert [type(one) for one in found if not isinstance(one, Record | FileEnd)] == [Hole]
    assert [one.queue_offset for one in found if isinstance(one, Record)] == list(
        range(store.max_offset("orders", 0))
    )


def test_a_scan_can_continue_where_another_ended() -> None:
    files = StoreFiles(filled(RecordingDisk()))
    records = list(files.records())
    assert list(files.records(records[50].log_offset)) == records[50:]


def test_damage_is_a_hole_and_what_follows_it_is_read() -> None:
    disk = filled(RecordingDisk())
    records = list(StoreFiles(disk).records())
    damaged = records[7]
    path = "commitlog/00000000000000000000"
    data = bytearray(disk.files()[path])
    data[damaged.log_offset + 100] ^= 1
    disk.poke(path, bytes(data))
    files = StoreFiles(disk)
    assert [number_of(record) for record in files.records()] == [
        number for number in range(200) if number != 7
    ]
    (hole,) = [one for one in files.scan() if isinstance(one, Hole) and not one.is_tail]
    assert (hole.start, hole.end) == (damaged.log_offset, damaged.log_offset + damaged.size)


def test_units_lead_to_their_records() -> None:
    files = StoreFiles(filled(RecordingDisk()))
    records = {record.log_offset: record for record in files.records()}
    units = list(files.units("orders", 1))
    assert [offset for offset, _ in units] == list(range(100))
    for offset, (log_offset, size, _) in units:
        record = records[log_offset]
        assert (record.queue_id, record.queue_offset, record.size) == (1, offset, size)


def test_reading_writes_nothing(tmp_path: Path) -> None:
    store = open_store(RealDisk(tmp_path))
    for number in range(100):
        store.append(message(number), number)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    files = StoreFiles.at(tmp_path)
    assert len(list(files.records())) == 100
    assert files.snapshot() is not None
    assert files.mark() is not None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    store.close()


def test_an_empty_directory_holds_nothing(tmp_path: Path) -> None:
    files = StoreFiles.at(tmp_path)
    assert (files.log_starts(), files.log_file_size(), list(files.records())) == ([], 0, [])
    assert files.queues() == []
    assert files.read_log(0, 10) == b""


def test_log_files_of_different_sizes_are_named() -> None:
    disk = filled(RecordingDisk())
    disk.poke("commitlog/00000000000000016384", b"short")
    with pytest.raises(StoreCorrupted, match="00000000000000016384 is damaged at byte 0"):
        StoreFiles(disk).log_file_size()
