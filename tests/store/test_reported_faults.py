"""Faults that users of RocketMQ reported, each by its number there, that must not happen here."""

from random import Random

import pytest

from sparrowmq.store.consume_queue import KEPT_UNITS, UNIT, QueueFiles
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.index.key_index import KeyIndex
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, Told, flush, message, numbers, open_store


def test_405_messages_that_were_not_dispatched_before_the_power_went_are_dispatched() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(100):
        store.append(message(number), number)
    plan = store.begin_flush(urgent=True)  # the log is durable, the queue was never written
    assert plan is not None
    for path in plan.files:
        disk.sync(path)
    for path in plan.directories:
        disk.sync_dir(path)
    store.finish_flush(plan)
    assert not any(path.startswith("consumequeue/") for path in disk.files())
    for seed in range(10):
        assert numbers(open_store(disk.crashed(Random(seed)))) == list(range(100))


def test_467_messages_sent_after_a_recovery_get_the_right_offsets() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(50):
        store.append(message(number), number)
    store = open_store(disk := disk.killed())
    assert store.append(message(50), 50).queue_offset == 50
    assert numbers(store) == list(range(51))
    assert numbers(open_store(disk.killed())) == list(range(51))


def test_1434_undispatched_messages_on_both_sides_of_a_file_roll_are_dispatched() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    number = 0
    while store.max_log_offset <= SMALL.log_file_size:
        store.append(message(number), number)
        number += 1
    assert numbers(open_store(disk.killed())) == list(range(number))


def test_7355_a_lost_queue_file_is_rebuilt() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(130):
        store.append(message(number), number)
    store.close()
    last = max(path for path in disk.files() if path.startswith("consumequeue/orders/0/"))
    before = disk.files()[last]
    disk.unlink(last)
    told = Told()
    store = open_store(disk, report=told)
    assert numbers(store) == list(range(130))
    assert store.append(message(130), 130).queue_offset == 130
    assert [damage.action for damage in told.damage] == ["rebuilt from the log"]
    assert disk.files()[last] == before


@pytest.mark.parametrize("length", [0, 1, 4096])
def test_6904_a_file_that_a_kill_left_too_short_does_not_stop_the_start(length: int) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    while store.max_log_offset < SMALL.log_file_size - 600:
        store.append(message(0), 0)
    store.tick(0)
    disk = disk.killed()
    count = store.max_offset("orders", 0)
    for path in (
        f"commitlog/{SMALL.log_file_size:020d}",
        max(path for path in disk.files() if path.startswith("consumequeue/")),
    ):
        copy = disk.killed()
        copy.poke(path, copy.files()[path][:length])
        store = open_store(copy)
        assert store.max_offset("orders", 0) == count
        assert store.append(message(0), 0).queue_offset == count
        assert all(
            len(data) == SMALL.log_file_size
            for name, data in copy.files().items()
            if name.startswith("commitlog/")
        )


@pytest.mark.parametrize("call", range(1, 60, 2))
def test_7729_a_power_cut_while_starting_or_stopping_does_not_stop_the_next_start(
    call: int,
) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(40):
        store.append(message(number), number)
    flush(store, disk)
    disk.cut_at(call)
    try:
        store.close()
        open_store(disk)
    except PowerCut:
        pass
    assert numbers(open_store(disk.crashed(Random(call)))) == list(range(40))


def test_3257_leftover_files_do_not_stop_the_start() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    store.append(message(0), 0)
    store.close()
    for path in ("commitlog/.DS_Store", "consumequeue/orders/lost+found", "consumequeue/x y/0/z"):
        disk.mkdir(path.rpartition("/")[0])
        disk.poke(path, b"left over")
    assert numbers(open_store(disk)) == [0]


def test_573_a_disk_with_room_is_never_called_full() -> None:
    disk = RecordingDisk(capacity_bytes=4 * 1024 * 1024)
    for restart in range(5):
        store = open_store(disk, now_ms=restart)
        for number in range(50):
            store.append(message(restart * 50 + number), restart)
            store.tick(restart)
            assert not store.clean(restart)
        if restart % 2:
            store.close()
        else:
            disk = disk.killed()
    assert 1 - disk.usage().free_bytes / disk.usage().total_bytes < 0.75
    assert numbers(open_store(disk)) == list(range(250))


def test_9455_a_clock_far_ahead_and_back_changes_nothing_at_start() -> None:
    """The report is about registering; this is the store's share of a start after a time jump."""
    disk = RecordingDisk()
    far = 2_550_000_000_000
    store = open_store(disk, now_ms=far)
    for number in range(30):
        store.append(message(number), far)
    store.tick(far)
    flush(store, disk)
    store = open_store(disk := disk.killed(), now_ms=1_000)
    for number in range(30, 60):
        store.append(message(number), 1_000 + number)
        store.tick(1_000 + number * 10)
        flush(store, disk)
    assert numbers(open_store(disk.killed(), now_ms=5)) == list(range(60))
    assert store.queue_offset_by_time("orders", 0, 0) == 0


def test_units_in_memory_do_not_grow_with_the_number_of_messages() -> None:
    disk = RecordingDisk()
    dispatch = Dispatch(QueueFiles(SMALL, disk), KeyIndex(disk), SMALL.delay_levels_ms)
    queue = dispatch.queue("orders", 0)
    sizes = []
    for round_number in range(4):
        for number in range(1_000):
            dispatch.dispatch(queue, round_number * 1_000 + number, 100, 0, "", "", number)
        dispatch.write_tails(1)
        sizes.append(len(queue.tail))
    assert sizes == [KEPT_UNITS * UNIT.size] * 4
