"""Checkpoints bound what a start after a crash has to scan."""

from random import Random

import pytest

from sparrowmq.disk.syncer import sync_plan
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.durable_marks import Marks
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import Told, flush, message, numbers, open_store, with_sizes


def log_files_read_at_start(disk: RecordingDisk, config: StoreConfig) -> set[str]:
    read: set[str] = set()
    disk.on_call = lambda operation, path: read.add(path) if operation == "read" else None
    open_store(disk, config)
    disk.on_call = None
    return {path for path in read if path.startswith("commitlog/")}


def test_who_crashes_again_and_again_does_not_scan_more_each_time() -> None:
    config = with_sizes(checkpoint_interval_ms=1_000_000, checkpoint_bytes=32 * 1024)
    disk = RecordingDisk()
    scanned = []
    for life in range(6):
        disk = disk.killed()
        scanned.append(len(log_files_read_at_start(disk, config)))
        disk = disk.killed()
        store = open_store(disk, config)
        for number in range(100 * life, 100 * life + 100):
            store.append(message(number), number)
        flush(store, disk)
    assert numbers(open_store(disk.killed(), config)) == list(range(600))
    assert max(scanned) <= 3, scanned


def test_a_long_scan_of_thousands_of_queues_is_followed_by_a_checkpoint_in_portions() -> None:
    config = with_sizes(checkpoint_interval_ms=1_000_000, checkpoint_bytes=1_000_000)
    disk = RecordingDisk()
    store = open_store(disk, config, now_ms=1_000_000)
    for number in range(600):
        store.append(message(number, queue_id=number % 300), 1)
    flush(store, disk)
    disk = disk.killed()
    store = open_store(disk, config, now_ms=1_000_001)
    assert disk.calls["sync"] < 50
    for _ in range(20):
        store.tick(1_000_002)
        flush(store, disk)
    assert disk.calls["sync"] > 300
    snapshot = Marks(config, disk).load_snapshot()
    assert snapshot is not None and snapshot.log_offset == store.max_log_offset


def test_a_checkpoint_completes_although_a_send_waits_for_every_flush() -> None:
    config = with_sizes(checkpoint_interval_ms=10)
    disk = RecordingDisk()
    store = open_store(disk, config)
    for number in range(600):
        store.append(message(number, queue_id=number % 3), number)
        store.tick(number)
        plan = store.begin_flush(urgent=True)
        assert plan is not None
        sync_plan(disk, plan)
        store.finish_flush(plan)
    disk = disk.killed()
    assert len(disk.files()["commitlog/00000000000000000000"]) == config.log_file_size
    assert "commitlog/00000000000000000000" not in log_files_read_at_start(disk, config)


def test_a_send_that_waits_for_a_flush_rarely_waits_for_other_files() -> None:
    disk = RecordingDisk()
    store = open_store(disk, with_sizes(checkpoint_interval_ms=1_000))
    others = 0
    for number in range(1_000):
        store.append(message(number, queue_id=number % 8), number)
        store.tick(number)
        plan = store.begin_flush(urgent=True)
        assert plan is not None
        others += bool(plan.derived)
        sync_plan(disk, plan)
        store.finish_flush(plan)
    assert others == 1_000 // 50


def test_a_checkpoint_of_many_queues_completes_although_a_send_waits_for_every_flush() -> None:
    config = with_sizes(checkpoint_interval_ms=1_000_000, checkpoint_bytes=64 * 1024)
    disk = RecordingDisk()
    store = open_store(disk, config)
    for number in range(1_200):
        store.append(message(number, queue_id=number % 400), 1)
        store.tick(1)
        plan = store.begin_flush(urgent=True)
        assert plan is not None
        sync_plan(disk, plan)
        store.finish_flush(plan)
    snapshot = Marks(config, disk).load_snapshot()
    assert snapshot is not None and snapshot.log_offset >= 64 * 1024


def test_a_tick_makes_few_new_files_and_writes_to_many_others() -> None:
    queues, disk = 300, RecordingDisk()
    store = open_store(disk, with_sizes(checkpoint_interval_ms=1_000_000))
    written: list[str] = []
    disk.on_call = lambda operation, path: (
        written.append(path) if operation == "write" and path.startswith("consumequeue/") else None
    )
    counts = []
    for number in range(2 * queues):
        store.append(message(number, queue_id=number % queues), 1)
        if number % queues == queues - 1:
            store.tick(1)
            counts.append(len(set(written)))
            while len(set(written)) < queues:
                store.tick(1)
            written.clear()
    new, existing = counts
    assert 0 < new <= 16, "the loop waits for each file to be made"
    assert existing > 200


@pytest.mark.parametrize(("file_ms", "most"), [(0, 16), (1, 4), (2, 2), (30, 1)])
def test_a_tick_makes_fewer_new_files_while_the_disk_is_slow(file_ms: int, most: int) -> None:
    disk, now_ms = RecordingDisk(), 0
    store = open_store(disk)
    made: list[str] = []

    def make(operation: str, path: str) -> None:
        nonlocal now_ms
        if operation == "truncate" and path.startswith("consumequeue/"):
            now_ms += file_ms
            made.append(path)

    disk.on_call = make
    for number in range(40):
        store.append(message(number, queue_id=number), 1)
    counts = []
    while len(made) < 40:
        before = len(made)
        store.tick(1, lambda: now_ms)
        counts.append(len(made) - before)
    assert max(counts) == counts[0] == most
    assert [numbers(store, queue_id=each) for each in range(40)] == [[each] for each in range(40)]


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("deleted_at", range(1, 9))
def test_a_topic_that_is_deleted_during_a_checkpoint_stays_deleted_after_a_crash(
    deleted_at: int, is_made_again: bool
) -> None:
    """At any of its steps, with nothing stored since it began."""
    disk = RecordingDisk()
    store = open_store(disk, now_ms=1)
    for number in range(20):
        store.append(message(number, "doomed"), number)
        store.append(message(number, "orders"), number)
    for step in range(1, 12):
        if step == deleted_at:
            store.delete_topic("doomed", 1)
            if is_made_again:
                store.append(message(100, "doomed"), 100)
        if step % 2:
            store.tick(1_000)
        else:
            flush(store, disk)
    told = Told()
    again = open_store(disk.killed(), report=told)
    assert told.damage == []
    assert numbers(again, "doomed") == ([100] if is_made_again else [])
    assert numbers(again, "orders") == list(range(20))


def test_appends_and_ticks_leave_all_syncing_to_the_flush() -> None:
    """They run on the broker's loop, where a sync would keep every client waiting."""
    disk = RecordingDisk()
    store = open_store(disk)
    calls = disk.calls["sync"], disk.calls["sync_dir"]
    # 500 entries fit into an index file: this makes three, and queue and log files as well.
    for number in range(600):
        store.append(message(number), number)
        store.tick(number)
    assert len(disk.listdir("index")) > 2
    assert (disk.calls["sync"], disk.calls["sync_dir"]) == calls


def test_the_names_of_new_index_files_are_durable_with_the_checkpoint() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(600):
        store.append(message(number), number)
    for now_ms in range(1_000, 3_000, 50):
        store.tick(now_ms)
        flush(store, disk)
    names = disk.listdir("index")
    assert len(names) > 2
    for seed in range(20):
        assert disk.crashed(Random(seed)).listdir("index") == names
