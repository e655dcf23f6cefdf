"""Reads that have to wait for the device are handed over instead of stopping the loop."""

import threading

import pytest

from sparrowmq.store.consume_queue import UNIT
from sparrowmq.store.layout import file_name, log_path, queue_dir
from sparrowmq.store.messages import QueueRead, ReadStatus
from sparrowmq.store.store import ColdRead, Store
from tests.store.cold_disk import ColdDisk
from tests.store.stores import message, number_of, numbers, open_store, records_of


def cold_store() -> tuple[Store, ColdDisk]:
    disk = ColdDisk()
    store = open_store(disk)
    for number in range(400):
        store.append(message(number, queue_id=number % 2), number)
    store.tick(400)
    store.tick(800)
    return store, disk


def test_a_cold_read_is_finished_in_another_thread() -> None:
    store, _ = cold_store()
    cold = store.read_queue("orders", 0, 3, max_count=4)
    assert isinstance(cold, ColdRead)
    found: list[QueueRead] = []
    thread = threading.Thread(target=lambda: found.append(cold.load()))
    thread.start()
    thread.join()
    assert [number_of(record) for record in records_of(found[0])] == [6, 8, 10, 12]
    assert (found[0].next_offset, found[0].max_offset) == (7, 200)


def test_a_cold_read_returns_the_same_as_a_warm_one() -> None:
    store, disk = cold_store()
    cold = store.read_queue("orders", 1, 0, max_count=50, accepts_tag={0})
    assert isinstance(cold, ColdRead)
    disk.is_cold = False
    assert cold.load() == store.read_queue("orders", 1, 0, max_count=50, accepts_tag={0})


def test_a_cold_read_survives_the_deletion_of_its_file() -> None:
    store, disk = cold_store()
    cold = store.read_queue("orders", 0, 0)
    assert isinstance(cold, ColdRead)
    for path in list(disk.files()):
        if path.startswith(("commitlog/", "consumequeue/")):
            disk.unlink(path)
    found = cold.load()
    assert found.count == 0
    assert found.status in (ReadStatus.OFFSET_FOUND_NULL, ReadStatus.MESSAGE_WAS_REMOVING)


def test_a_cold_read_takes_along_the_units_that_are_only_in_memory() -> None:
    store, _ = cold_store()
    for number in range(400, 420):
        store.append(message(number, queue_id=0), number)
    cold = store.read_queue("orders", 0, 195, max_count=50)
    assert isinstance(cold, ColdRead)
    store.append(message(420, queue_id=0), 420)
    found = cold.load()
    expected = [*range(390, 400, 2), *range(400, 420)]
    assert [number_of(record) for record in records_of(found)] == expected
    assert found.next_offset == 195 + 25
    assert numbers(store, queue_id=0)[195:] == [*expected, 420]


def asked_of(disk: ColdDisk, path: str) -> list[tuple[int, int]]:
    return [(start, end) for asked, start, end in disk.asked_ahead if asked == path]


@pytest.mark.parametrize("count", [1, 32])
def test_after_a_cold_read_the_device_reads_on_for_the_next_ones(count: int) -> None:
    store, disk = cold_store()
    cold = store.read_queue("orders", 0, 3, max_count=count)
    assert isinstance(cold, ColdRead)
    assert not disk.asked_ahead  # nothing is asked for on the loop
    first, *_, last = [record.log_offset for record in records_of(cold.load())] * 2
    ((from_unit, to_unit),) = asked_of(disk, f"{queue_dir('orders', 0)}/{file_name(0)}")
    assert from_unit == 3 * UNIT.size
    assert to_unit > (3 + 10 * count) * UNIT.size
    itself, *_, following = asked_of(disk, log_path(0))
    assert itself[0] == first
    assert following[0] == last + store.units("orders", 0, 3 + count - 1, 1)[0][1]
    assert following[1] - following[0] > 10 * (following[0] - first)


def test_messages_far_apart_in_the_log_are_not_read_ahead() -> None:
    disk = ColdDisk()
    store = open_store(disk)
    for number in range(400):
        store.append(message(number, queue_id=0 if number % 50 == 0 else 1), number)
    for number in range(400, 800):
        store.append(message(number, queue_id=0), number)
    store.tick(800)
    store.tick(1_200)
    cold = store.read_queue("orders", 0, 0, max_count=2)
    assert isinstance(cold, ColdRead)
    records = [record.log_offset for record in records_of(cold.load())]
    assert [start for start, _ in asked_of(disk, log_path(0))] == records


def test_a_consumer_that_keeps_reading_cold_gets_more_read_ahead() -> None:
    store, disk = cold_store()

    def ahead_mib(offset: int) -> int:
        cold = store.read_queue("orders", 0, offset, max_count=4)
        assert isinstance(cold, ColdRead)
        cold.load()
        _, start, end = disk.asked_ahead[-1]
        return (end - start) // (1024 * 1024)

    assert [ahead_mib(offset) for offset in (3, 7, 11, 50, 54, 58)] == [1, 2, 4, 8, 8, 8]
    assert [ahead_mib(offset) for offset in (5, 9, 9, 5)] == [1, 2, 1, 1]
