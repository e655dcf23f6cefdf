"""Restarting: after a normal stop, after a crash, after the loss of derived files."""

from random import Random

import pytest

from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.store.messages import PutMessage
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.filled_stores import COUNT, derived, everything, filled, with_an_old_topic
from tests.store.stores import SMALL, Told, flush, message, numbers, open_store, with_sizes


def test_after_a_normal_stop_no_log_is_read() -> None:
    disk = RecordingDisk()
    filled(disk).close()
    disk = disk.killed()
    read: list[str] = []
    disk.on_call = lambda operation, path: read.append(path) if operation == "read" else None
    store = open_store(disk)
    # eight bytes past the end: has another process written there?
    assert len([path for path in read if path.startswith("commitlog/")]) == 1
    disk.on_call = None
    assert everything(store) == list(range(COUNT))


def test_after_a_crash_only_what_follows_the_last_snapshot_is_scanned() -> None:
    disk = RecordingDisk()
    filled(disk)
    disk = disk.killed()
    read: set[str] = set()
    disk.on_call = lambda operation, path: read.add(path) if operation == "read" else None
    store = open_store(disk)
    assert "commitlog/00000000000000000000" not in read
    disk.on_call = None
    assert everything(store) == list(range(COUNT))


def test_a_torn_tail_is_cut_kept_aside_and_reported() -> None:
    disk = RecordingDisk()
    store = filled(disk, 20)
    end = store.max_log_offset
    last = store.append(message(99), 99)
    disk = disk.killed()
    path = "commitlog/00000000000000000000"
    log = disk.files()[path]
    disk.poke(path, log[: end + last.size - 30] + bytes(len(log) - end - last.size + 30))
    told = Told()
    store = open_store(disk, report=told)
    assert everything(store) == list(range(20))
    assert store.max_log_offset == end
    (damage,) = told.damage
    assert (damage.path, damage.position, damage.reason) == (path, end, "a torn tail")
    copy = disk.files()[f"sparrowmq/quarantine/{end:020d}-{damage.length}"]
    assert copy == log[end : end + damage.length]
    assert disk.files()[path][end:] == bytes(len(log) - end)
    # the space is used again
    assert store.append(message(20, queue_id=20 % 3), 20).log_offset == end


def test_a_second_torn_tail_at_the_same_place_does_not_take_the_first_one_s_copy() -> None:
    disk = RecordingDisk()
    end = filled(disk, 20).max_log_offset
    path = "commitlog/00000000000000000000"
    for torn in (b"first!", b"second"):
        disk = disk.killed()
        log = disk.files()[path]
        disk.poke(path, log[:end] + torn + log[end + len(torn) :])
        assert open_store(disk, report=Told()).max_log_offset == end
    kept = {data for name, data in disk.files().items() if "quarantine" in name}
    assert kept == {b"first!", b"second"}


def test_units_of_messages_that_a_power_cut_took_are_gone_from_the_files() -> None:
    """Apache, opening the store, would count them."""
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(30):
        store.append(message(number), number)
    for now in (1_000, 1_001, 1_002):
        store.tick(now)
        flush(store, disk)
    end = store.durable_log_offset
    for number in range(30, 45):
        store.append(message(number), number)
    store.tick(1_003)
    disk = disk.killed()
    log, queue = "commitlog/00000000000000000000", "consumequeue/orders/0/00000000000000000000"
    disk.poke(log, disk.files()[log][:end] + bytes(SMALL.log_file_size - end))
    assert any(disk.files()[queue][30 * 20 :])
    store = open_store(disk)
    assert store.queue_range("orders", 0) == (0, 30)
    assert not any(disk.files()[queue][30 * 20 :])
    assert store.append(message(30), 50).queue_offset == 30


def test_a_queue_that_began_with_messages_a_power_cut_took_is_gone_from_the_files() -> None:
    disk = RecordingDisk()
    store = filled(disk, 20)
    for now in (1_000, 1_001, 1_002):
        store.tick(now)
        flush(store, disk)
    end = store.durable_log_offset
    store.append(message(1, "late"), 1_003)
    store.tick(1_004)
    disk = disk.killed()
    assert derived(disk, "consumequeue/late")
    log = "commitlog/00000000000000000000"
    disk.poke(log, disk.files()[log][:end] + bytes(SMALL.log_file_size - end))
    store = open_store(disk)
    assert store.queue_range("late", 0) == (0, 0)
    assert derived(disk, "consumequeue/late") == {}
    assert everything(store) == list(range(20))


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_derived_files_are_rebuilt_identically(folder: str) -> None:
    disk = RecordingDisk()
    filled(disk).close()
    before = derived(disk, folder)
    assert before
    for path in before:
        disk.unlink(path)
    store = open_store(disk)
    assert everything(store) == list(range(COUNT))
    assert store.find_by_key("orders", "k123", 0, COUNT, 8).log_offsets
    store.close()
    assert derived(disk, folder) == before


@pytest.mark.parametrize("path", ["checkpoint", "abort", "sparrowmq/mark", "sparrowmq/queues.0"])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_any_single_file_except_the_log_may_be_deleted(path: str, is_stopped: bool) -> None:
    disk = RecordingDisk()
    store = filled(disk)
    if is_stopped:
        store.close()
    disk = disk.killed()
    disk.unlink(path)
    assert everything(open_store(disk)) == list(range(COUNT))


def test_a_queue_whose_messages_have_all_expired_keeps_its_end_offset() -> None:
    """Else its consumers would ask for offsets that do not exist yet, and miss messages."""
    disk = with_an_old_topic()
    disk.unlink("commitlog/00000000000000000000")
    store = open_store(disk)
    assert store.queue_range("old", 0) == (10, 10)
    store.close()
    for path in derived(disk, "consumequeue"):
        disk.unlink(path)
    store = open_store(disk)
    assert store.queue_range("old", 0) == (10, 10)
    assert store.append(message(10, "old"), 201).queue_offset == 10


def test_delivery_times_of_delayed_messages_are_rebuilt() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    put = PutMessage(
        topic=SCHEDULE_TOPIC,
        queue_id=2,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        reconsume_times=0,
        body=b"later",
        properties=b"DELAY\x013\x02TAGS\x01x\x02",
        tags_code=5_000 + 10_000,
    )
    store.append(put, 5_000)
    units = store.units(SCHEDULE_TOPIC, 2, 0, 1)
    store.close()
    for path in derived(disk, "consumequeue"):
        disk.unlink(path)
    assert open_store(disk).units(SCHEDULE_TOPIC, 2, 0, 1) == units


def test_a_deleted_topic_stays_deleted_and_can_be_recreated() -> None:
    disk = RecordingDisk()
    store = filled(disk)
    assert store.delete_topic("orders", 1)
    assert not store.delete_topic("orders", 1)
    assert disk.listdir("consumequeue") == []
    for restart in (disk.killed(), disk.crashed(Random(1))):
        again = open_store(restart)
        assert everything(again) == []
        assert again.append(message(7), 7).queue_offset == 0
        again.close()
        assert numbers(open_store(restart)) == [7]


def test_other_topics_stay_when_one_is_deleted() -> None:
    disk = RecordingDisk()
    store = filled(disk)
    for number in (1, 2, 3):
        store.append(message(number, "other"), COUNT)
    assert store.delete_topic("orders", 1)
    for each in (store, open_store(disk.killed())):
        assert everything(each) == []
        assert numbers(each, "other") == [1, 2, 3]


def test_a_topic_deleted_just_before_its_last_messages_were_torn_may_begin_again() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    store.append(message(0, "other"), 1)
    flush(store, disk)
    end = store.durable_log_offset
    store.append(message(1), 2)
    assert store.delete_topic("orders", 1)
    disk = disk.killed()
    path = "commitlog/00000000000000000000"
    disk.poke(path, disk.files()[path][:end] + bytes(SMALL.log_file_size - end))
    store = open_store(disk)
    store.append(message(2), 3)
    assert numbers(open_store(disk.killed())) == [2]


def test_progress_is_reported_during_a_long_scan() -> None:
    disk = RecordingDisk()
    config = with_sizes(log_file_size=8 * 1024 * 1024, reserve_bytes=1024 * 1024)
    store = open_store(disk, config)
    for number in range(700):
        store.append(message(number, size=50_000), number)
    told = Told()
    open_store(disk.killed(), config, report=told)
    assert [progress.what for progress in told.progress] == ["scanning the log"] * 2
    assert told.progress[0].done < told.progress[1].done <= told.progress[1].total


def test_zeros_at_the_end_are_not_damage() -> None:
    disk = RecordingDisk()
    end = filled(disk, 5).max_log_offset
    log = disk.files()["commitlog/00000000000000000000"]
    assert len(log) > end and not any(log[end:])
    told = Told()
    assert open_store(disk.killed(), report=told).max_log_offset == end
    assert not told.damage


@pytest.mark.parametrize("host", [bytes(8), bytes(20)], ids=["IPv4", "IPv6"])
def test_a_zero_in_a_property_does_not_make_a_torn_record(host: bytes) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(3):
        put = message(number)
        put.born_host = host
        put.properties += b"PATH\x01a\0b\x02"
        store.append(put, number)
    told = Told()
    assert numbers(open_store(disk.killed(), report=told)) == [0, 1, 2]
    assert told.damage == []
