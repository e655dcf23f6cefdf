"""Reads that have to wait for the device are handed over instead of stopping the loop."""

import threading

from sparrowmq.disk.disk import DiskFile
from sparrowmq.store.messages import QueueRead, ReadStatus
from sparrowmq.store.store import ColdRead, Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import message, number_of, numbers, open_store, records_of


class ColdDisk(RecordingDisk):
    """Nothing is in memory: what was not kept by the store itself has to be waited for."""

    is_cold = True

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        file = super().open(path, create=create, write=write)
        file.read_cached = (  # type: ignore[method-assign]
            lambda offset, length: None if self.is_cold else file.read(offset, length)
        )
        return file


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


def test_a_cold_read_gives_what_a_warm_one_gives() -> None:
    store, disk = cold_store()
    cold = store.read_queue("orders", 1, 0, max_count=50, accepts_tag={0})
    assert isinstance(cold, ColdRead)
    disk.is_cold = False
    assert cold.load() == store.read_queue("orders", 1, 0, max_count=50, accepts_tag={0})


def test_a_cold_read_survives_the_deletion_of_what_it_reads() -> None:
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
