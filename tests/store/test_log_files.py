"""The files on disk: names, lengths and ends as Apache's broker requires."""

import struct
from pathlib import Path

import pytest

from sparrowmq.disk.errors import StoreLocked
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.protocol.record_layout import BLANK_MAGIC
from sparrowmq.store.durable_marks import load_checkpoint
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, flush, message, numbers, open_store, with_sizes

FILE = SMALL.log_file_size


def test_a_file_ends_with_a_blank_record_where_a_record_and_eight_bytes_do_not_fit() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    size = store.append(message(0), 1).size
    last = [store.append(message(number), 1) for number in range(1, 2 * FILE // size)]
    at = max(one.log_offset + one.size for one in last if one.log_offset < FILE)
    assert at + size + 8 > FILE
    left, magic = struct.unpack_from(">II", disk.files()["commitlog/00000000000000000000"], at)
    assert (left, magic) == (FILE - at, BLANK_MAGIC)
    assert FILE in [one.log_offset for one in last]


def test_a_record_that_leaves_exactly_eight_bytes_stays_in_its_file() -> None:
    store = open_store(RecordingDisk())
    overhead = store.append(message(0, size=100), 1).size - 100
    left = FILE - store.max_log_offset
    stored = store.append(message(1, size=left - 8 - overhead), 1)
    assert stored.log_offset + stored.size == FILE - 8
    assert store.append(message(2), 1).log_offset == FILE
    assert numbers(store) == [0, 1, 2]


def test_a_record_that_would_leave_seven_bytes_opens_the_next_file() -> None:
    store = open_store(RecordingDisk())
    overhead = store.append(message(0, size=100), 1).size - 100
    left = FILE - store.max_log_offset
    assert store.append(message(1, size=left - 7 - overhead), 1).log_offset == FILE
    assert numbers(store) == [0, 1]


def test_every_file_has_the_length_that_apache_demands() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(300):
        store.append(message(number), number)
        store.tick(number)
    for path, data in disk.files().items():
        if path.startswith("commitlog/"):
            assert len(data) == FILE
        if path.startswith("consumequeue/"):
            assert len(data) == SMALL.queue_file_units * 20
    store.close()
    assert len(disk.files()["checkpoint"]) == 4096


def test_a_flush_names_the_files_written_since_the_last_one_and_no_others() -> None:
    store = open_store(RecordingDisk())
    names = [f"commitlog/{number * FILE:020d}" for number in range(4)]
    store.append(message(0), 1)
    assert flushed_files(store) == names[:1]
    while store.max_log_offset < 2 * FILE + 100:
        store.append(message(1), 1)
    assert flushed_files(store) == names[:3]
    store.append(message(2), 1)
    assert flushed_files(store) == names[2:3]
    while store.max_log_offset < 3 * FILE + 100:
        store.append(message(3), 1)
    assert flushed_files(store) == names[2:4]


def flushed_files(store: Store) -> list[str]:
    plan = store.begin_flush(urgent=True)
    assert plan is not None
    store.finish_flush(plan)
    return plan.files


def test_an_unused_file_that_was_made_ahead_is_gone_after_a_normal_stop() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    while store.max_log_offset < FILE - 600:
        store.append(message(1), 1)
    store.tick(1)
    assert f"commitlog/{FILE:020d}" in disk.files()
    store.close()
    assert f"commitlog/{FILE:020d}" not in disk.files()


def test_log_space_is_reserved_in_windows_and_queues_are_sparse(tmp_path: Path) -> None:
    store = open_store(RealDisk(tmp_path))
    store.append(message(1), 1)
    store.tick(1)
    log = (tmp_path / "commitlog/00000000000000000000").stat()
    assert log.st_size == FILE
    assert SMALL.reserve_bytes <= log.st_blocks * 512 < FILE
    store.close()


def test_the_abort_marker_is_there_while_the_store_is_open() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    assert disk.exists("abort")
    store.close()
    assert not disk.exists("abort")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    import subprocess
    import sys

    store = open_store(RealDisk(tmp_path))
    script = (
        "import sys; from pathlib import Path\n"
        "from sparrowmq.disk.real_disk import RealDisk\n"
        "from sparrowmq.store.store import Store\n"
        "from sparrowmq.store.config import StoreConfig\n"
        "Store.open(StoreConfig(), RealDisk(Path(sys.argv[1])), 1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "StoreLocked: another process uses the store" in ended.stderr
    store.close()


def test_two_stores_in_one_process_are_refused_too() -> None:
    disk = RecordingDisk()
    open_store(disk)
    with pytest.raises(StoreLocked):
        open_store(disk)


def test_the_checkpoint_is_never_ahead_of_the_disk() -> None:
    """#678"""
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(1, 40):
        store.append(message(number), 1_000 * number)
        store.tick(1_000 * number)
        times = load_checkpoint(disk)
        assert all(time <= 1_000 * (number - 1) for time in times)
        flush(store, disk)
    log_time, queue_time, _ = load_checkpoint(disk)
    assert log_time > 30_000
    assert queue_time > 20_000
    store.close()
    assert load_checkpoint(disk) == (39_000, 39_000, 39_000)


def test_the_number_of_open_queue_files_is_limited_for_any_number_of_queues(
    tmp_path: Path,
) -> None:
    store = open_store(RealDisk(tmp_path), with_sizes(open_queue_files=5))
    for number in range(120):
        store.append(message(number, queue_id=number % 40), number)
        store.tick(number)
    assert all(numbers(store, queue_id=queue_id) for queue_id in range(40))
    links = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    open_queues = [link for link in links if link.is_relative_to(tmp_path / "consumequeue")]
    store.close()
    assert 0 < len(open_queues) <= 5
