"""Facts about single messages and ranges of them, found without waiting for the device."""

import pytest

from sparrowmq.store.store import ColdTime, Store
from tests.store.cold_disk import ColdDisk
from tests.store.stores import message, open_store

COUNT = 400
IN_MEMORY = 128


@pytest.fixture
def disk() -> ColdDisk:
    return ColdDisk()


@pytest.fixture
def store(disk: ColdDisk) -> Store:
    """A queue of 400 messages, stored at 0, 1, 2, …; the newest 128 units are in memory."""
    opened = open_store(disk)
    for number in range(COUNT):
        opened.append(message(number, size=20 + number), number)
    opened.tick(COUNT)
    opened.tick(2 * COUNT)
    return opened


def loaded(store: Store, offset: int) -> int:
    time = store.time_at("orders", 0, offset)
    return store.load_times([time])[0] if isinstance(time, ColdTime) else time


@pytest.mark.parametrize("offset", [0, 1, 49, 50, 271, 272, 399])
def test_every_store_time_is_found(store: Store, offset: int) -> None:
    assert loaded(store, offset) == offset


@pytest.mark.parametrize("offset", [-1, COUNT, COUNT + 5])
def test_an_offset_outside_the_queue_has_no_store_time(store: Store, offset: int) -> None:
    assert store.time_at("orders", 0, offset) == -1
    assert store.time_at("orders", 1, 0) == -1


def test_lookups_outside_memory_are_left_to_a_worker(store: Store, disk: ColdDisk) -> None:
    assert isinstance(store.time_at("orders", 0, 0), ColdTime)
    assert isinstance(store.time_at("orders", 0, COUNT - 1), ColdTime), "its record is cold"
    disk.is_cold = False
    assert store.time_at("orders", 0, COUNT - 1) == COUNT - 1
    assert isinstance(store.time_at("orders", 0, 0), ColdTime), "its unit is in a file"


def test_times_whose_files_were_deleted_meanwhile_are_unknown(store: Store, disk: ColdDisk) -> None:
    cold = [store.time_at("orders", 0, offset) for offset in (0, 100, COUNT - 1)]
    for path in list(disk.files()):
        if path.startswith(("commitlog/", "consumequeue/")):
            disk.unlink(path)
    assert store.load_times([one for one in cold if isinstance(one, ColdTime)]) == [-1, -1, -1]


def size_of(store: Store, first: int, end: int) -> int:
    return sum(size for _, size, _ in store.units("orders", 0, first, end - first))


@pytest.mark.parametrize(
    ("first", "end"), [(0, 0), (5, 5), (0, 1), (3, 60), (0, COUNT), (250, 300), (399, 400)]
)
def test_sizes_add_up(store: Store, disk: ColdDisk, first: int, end: int) -> None:
    disk.is_cold = False
    assert store.bytes_in("orders", 0, first, end) == size_of(store, first, end)


def test_sizes_that_are_not_in_memory_are_estimated_by_the_others(store: Store) -> None:
    assert store.bytes_in("orders", 0, 0, 100) == 0, "nothing of it is known"
    newest = COUNT - IN_MEMORY
    assert store.bytes_in("orders", 0, newest, COUNT) == size_of(store, newest, COUNT)


def test_messages_that_are_gone_count_with_the_mean_of_the_others(
    store: Store, disk: ColdDisk
) -> None:
    disk.is_cold = False
    newest = size_of(store, COUNT - 2, COUNT)
    assert store.bytes_in("orders", 0, COUNT - 2, COUNT + 2) == 2 * newest


def test_a_queue_that_does_not_exist_has_no_bytes(store: Store) -> None:
    assert store.bytes_in("orders", 7, 0, 10) == 0
