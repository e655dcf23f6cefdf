"""How long messages are kept, also while the disk fills up."""

import time

import pytest

from sparrowmq.clock import Zone, local_zone, utc
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.retention import LogFile, files_to_delete, is_deletion_hour, refuses
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, Told, flush, message, numbers, open_store, read, with_sizes

HOUR = 3_600_000
FOUR = 4 * HOUR
NOON = 12 * HOUR
KEPT = 72 * HOUR
OLD = LogFile(0, 0)
YOUNG = LogFile(16_384, KEPT)


@pytest.mark.parametrize(
    ("now_ms", "used_ratio", "deleted"),
    [
        (4 * 24 * HOUR + FOUR, 0.1, [0]),
        (4 * 24 * HOUR + NOON, 0.1, []),
        (4 * 24 * HOUR + NOON, 0.75, [0]),
        (KEPT, 0.80, []),
        (KEPT, 0.85, [0]),
    ],
    ids=[
        "expired files go in the deletion hour",
        "and stay until then",
        "at 75 % they go at any hour",
        "what is not expired stays",
        "at 85 % the oldest goes though it is not expired",
    ],
)
def test_which_files_are_deleted(now_ms: int, used_ratio: float, deleted: list[int]) -> None:
    assert files_to_delete(SMALL, [OLD, YOUNG], now_ms, used_ratio) == deleted


def test_a_message_is_kept_for_72_hours_and_not_a_millisecond_longer() -> None:
    file = LogFile(0, FOUR)
    assert files_to_delete(SMALL, [file], FOUR + KEPT, 0.1) == []
    assert files_to_delete(SMALL, [file], FOUR + KEPT + 1, 0.1) == [0]


def test_who_asks_for_it_need_not_wait_for_the_deletion_hour() -> None:
    now_ms = 4 * 24 * HOUR + NOON
    assert files_to_delete(SMALL, [OLD, YOUNG], now_ms, 0.1, any_hour=True) == [0]


@pytest.mark.parametrize(
    ("needed_from", "used_ratio", "deleted"),
    [
        (None, 0.1, [0, 16_384, 32_768]),
        (49_152, 0.1, [0, 16_384, 32_768]),
        (49_151, 0.1, [0, 16_384]),
        (16_384, 0.1, [0]),
        (16_383, 0.1, []),
        (0, 0.1, []),
        (0, 0.75, []),
        (0, 0.85, [0]),
        (16_384, 0.85, [0]),
    ],
    ids=[
        "without slaves all go",
        "a slave that has them does not keep them",
        "one that lacks the last byte of a file keeps it",
        "and what follows",
        "one that lacks the last byte of the first file keeps all",
        "one that has nothing keeps all",
        "also on a disk that is 75 % full",
        "at 85 % the oldest goes though it is needed",
        "at 85 % what is not needed goes, and the disk is looked at again",
    ],
)
def test_what_a_slave_needs_is_kept_while_the_disk_has_room(
    needed_from: int | None, used_ratio: float, deleted: list[int]
) -> None:
    assert SMALL.log_file_size == 16_384
    files = [LogFile(start, 0) for start in (0, 16_384, 32_768)]
    found = files_to_delete(
        SMALL, files, 2 * KEPT, used_ratio, any_hour=True, needed_from=needed_from
    )
    assert found == deleted


def test_a_full_disk_takes_expired_files_before_any_other() -> None:
    files = [LogFile(start, 0) for start in (0, 1, 2)]
    assert files_to_delete(SMALL, [*files, YOUNG], 2 * KEPT, 0.95) == [0, 1, 2]


def test_ten_files_are_deleted_at_once_and_the_disk_is_measured_again() -> None:
    files = [LogFile(start, 0) for start in range(25)]
    assert files_to_delete(SMALL, files, 2 * KEPT + FOUR, 0.1) == list(range(10))


def test_the_deletion_hour_is_a_local_one() -> None:
    assert is_deletion_hour(SMALL, FOUR + 59 * 60_000)
    assert not is_deletion_hour(SMALL, 5 * HOUR)
    assert is_deletion_hour(SMALL, 6 * HOUR, lambda moment_ms: -2 * HOUR)


def test_the_hosts_time_zone_applies_in_summer_and_winter_unless_an_offset_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    winter, summer = 1_767_225_600_000, 1_782_864_000_000  # 2026-01-01 and 2026-07-01, 0 h UTC
    fixed = with_sizes(utc_offset_ms=-HOUR).zone(local_zone)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        assert (local_zone(winter), local_zone(summer)) == (HOUR, 2 * HOUR)
        assert is_deletion_hour(SMALL, winter + 3 * HOUR, SMALL.zone(local_zone))
        assert is_deletion_hour(SMALL, summer + 2 * HOUR, SMALL.zone(local_zone))
        assert (fixed(winter), fixed(summer)) == (-HOUR, -HOUR)
    time.tzset()


@pytest.mark.parametrize("hour", [-1, 24])
def test_a_deletion_hour_is_one_of_the_day(hour: int) -> None:
    with pytest.raises(ValueError, match=f"deletion_hour is {hour}, must be 0 to 23"):
        with_sizes(deletion_hour=hour)
    assert with_sizes(deletion_hour=0).deletion_hour == 0
    assert with_sizes(deletion_hour=23).deletion_hour == 23


def test_refusing_has_a_hysteresis() -> None:
    assert not refuses(SMALL, was_refusing=False, used_ratio=0.89)
    assert refuses(SMALL, was_refusing=False, used_ratio=0.90)
    assert refuses(SMALL, was_refusing=True, used_ratio=0.86)
    assert not refuses(SMALL, was_refusing=True, used_ratio=0.84)


def test_a_file_without_a_known_time_is_never_expired() -> None:
    assert files_to_delete(SMALL, [LogFile(0, None)], 1 << 60, 0.8) == []


def aging(disk: RecordingDisk, days: int, zone: Zone = utc) -> Store:
    store = Store.open(SMALL, disk, 1, zone=zone)
    for day in range(days):
        for number in range(60):
            store.append(message(day * 60 + number, queue_id=number % 2), day * 24 * HOUR)
        store.tick(day * 24 * HOUR)
    flush(store, disk)
    return store


def test_an_open_store_deletes_by_the_clock_of_its_host() -> None:
    store = aging(RecordingDisk(), 10, zone=lambda moment_ms: -2 * HOUR)
    assert not store.clean(9 * 24 * HOUR + FOUR)
    assert store.clean(9 * 24 * HOUR + 6 * HOUR)


def test_expired_messages_disappear_from_log_queues_and_index() -> None:
    disk = RecordingDisk()
    store = aging(disk, 10)
    assert not store.clean(9 * 24 * HOUR + NOON)
    deleted = store.clean(9 * 24 * HOUR + FOUR)
    assert deleted
    assert store.min_log_offset == deleted[-1] + SMALL.log_file_size
    least, most = store.queue_range("orders", 0)
    assert 0 < least < most == 300
    assert numbers(store) == list(range(0, 600, 2))[least:]
    oldest = store.earliest_store_time("orders", 0)
    assert 9 * 24 * HOUR + FOUR - oldest <= KEPT + 48 * HOUR
    assert read(store, "orders", 0, 0).next_offset == least
    assert not store.find_by_key("orders", "k1", 0, 1 << 60, 8).log_offsets
    assert store.find_by_key("orders", "k599", 0, 1 << 60, 8).log_offsets
    first_file = "consumequeue/orders/0/00000000000000000000"
    assert (first_file in disk.files()) == (least < SMALL.queue_file_units)
    kept = numbers(store)
    killed = disk.killed()
    store.close()
    for restart in (killed, disk):
        again = open_store(restart)
        assert again.queue_range("orders", 0) == (least, most)
        assert numbers(again) == kept


def test_the_file_that_is_written_is_never_deleted() -> None:
    store = aging(RecordingDisk(), 10)
    store.clean(1_000 * 24 * HOUR + FOUR)
    written = store.max_log_offset - store.max_log_offset % SMALL.log_file_size
    assert store.min_log_offset == written
    assert numbers(store)[-1] == 598
    assert store.append(message(600), 1).queue_offset == 300


def test_index_files_go_with_the_messages_they_lead_to() -> None:
    disk = RecordingDisk()
    aging(disk, 10).close()
    store = open_store(disk)
    before = {path for path in disk.files() if path.startswith("index/")}
    store.clean(1_000 * 24 * HOUR + FOUR)
    after = {path for path in disk.files() if path.startswith("index/")}
    assert len(before) > len(after) > 0
    assert store.find_by_key("orders", "k599", 0, 1 << 60, 8).log_offsets


def test_offsets_continue_when_everything_has_expired() -> None:
    disk = RecordingDisk()
    store = aging(disk, 3)
    for number in range(200):
        store.append(message(number, "other"), 50 * 24 * HOUR)
    flush(store, disk)
    store.clean(60 * 24 * HOUR + FOUR)
    assert store.queue_range("orders", 0) == (90, 90)
    store.close()
    store = open_store(disk)
    assert store.append(message(180), 1).queue_offset == 90


def test_a_filling_disk_deletes_the_oldest_files_until_there_is_room() -> None:
    disk = RecordingDisk(capacity_bytes=100_000_000)
    store = aging(disk, 10)
    used = disk.usage().total_bytes - disk.usage().free_bytes
    disk.capacity_bytes = int(used / 0.95)
    deleted = store.clean(NOON)
    assert deleted
    assert 1 - disk.usage().free_bytes / disk.capacity_bytes < 0.85
    assert store.append(message(600), 1).queue_offset == 300


def test_the_watermark_is_checked_between_deletions() -> None:
    """#1400: checking the disk must not wait for a long deletion."""
    disk = RecordingDisk(capacity_bytes=100_000_000)
    store = aging(disk, 10)
    used = disk.usage().total_bytes - disk.usage().free_bytes
    disk.capacity_bytes = int(used / 0.86)
    before = len(disk.listdir("commitlog"))
    assert len(store.clean(NOON)) < before - 2


def test_a_disk_that_others_fill_ends_in_refusal_not_in_an_endless_loop() -> None:
    disk = RecordingDisk(capacity_bytes=100_000_000)
    store = aging(disk, 10)
    disk.capacity_bytes = 20_000
    store.clean(NOON)
    with pytest.raises(DiskFull):
        store.append(message(600), 1)
    assert store.min_log_offset == store.max_log_offset - store.max_log_offset % 16_384


def test_a_clock_that_jumps_deletes_no_recent_files() -> None:
    """#9455: set to the future and back."""
    disk = RecordingDisk()
    store = open_store(disk)
    future = 25 * 365 * 24 * HOUR
    for number in range(300):
        store.append(message(number), future if 100 <= number < 120 else NOON + number)
    store.tick(future)
    store.tick(NOON)
    assert not store.clean(NOON + FOUR * 4)
    told = Told()
    again = open_store(disk.killed(), report=told)
    assert numbers(again) == list(range(300))
    assert not told.damage


def test_a_file_that_is_not_durable_yet_is_not_deleted() -> None:
    """A sync may be running at this moment; its absence would count as a failed disk."""
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(300):
        store.append(message(number), 0)
    assert not store.clean(100 * 24 * HOUR + FOUR)
    flush(store, disk)
    assert store.clean(100 * 24 * HOUR + FOUR)
