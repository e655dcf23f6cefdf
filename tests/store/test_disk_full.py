"""A store refuses appends on a full disk and recovers without a restart."""

import errno

import pytest

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import message, numbers, open_store

MIB = 1024 * 1024


def send_until_full(store: Store, number: int) -> int:
    while True:
        try:
            store.append(message(number), number)
        except DiskFull:
            return number
        number += 1
        if number % 20 == 0:
            store.tick(number)


@pytest.mark.slow
def test_twenty_times_full_and_free_again() -> None:
    """#2398"""
    disk = RecordingDisk(capacity_bytes=192 * 1024)
    store = open_store(disk)
    number = 0
    for cycle in range(20):
        number = send_until_full(store, number)
        assert numbers(store) == list(range(number)), "readable while full"
        with pytest.raises(DiskFull):
            store.append(message(number), number)
        disk.capacity_bytes = (cycle + 4) * 64 * 1024
        store.tick(number)
        assert store.append(message(number), number).queue_offset == number
        number += 1
    assert numbers(store) == list(range(number))
    assert numbers(open_store(disk.killed())) == list(range(number))
    store.close()
    assert numbers(open_store(disk)) == list(range(number))


def test_what_was_reserved_can_be_used_though_the_disk_is_full() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    disk.fail("reserve", errno.ENOSPC)
    sent = send_until_full(store, 0)
    assert sent > 10


def test_a_disk_that_breaks_its_promise_of_space_is_full_and_no_more() -> None:
    """File systems that copy on write may refuse to write what they have allocated."""
    disk = RecordingDisk()
    store = open_store(disk)
    disk.fail("warm", errno.ENOSPC)
    sent = send_until_full(store, 0)
    disk.heal()
    assert store.append(message(sent), sent).queue_offset == sent
    assert numbers(store) == list(range(sent + 1))


def test_units_that_could_not_be_written_stay_readable_and_are_written_later() -> None:
    """#2398: a queue that met a full disk once must not stay unwritable."""
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(30):
        store.append(message(number), number)
    disk.fail("write", errno.ENOSPC, path_prefix="consumequeue/")
    store.tick(1)
    with pytest.raises(DiskFull):
        store.append(message(30), 30)
    assert numbers(store) == list(range(30))
    disk.heal()
    store.tick(2)
    assert store.append(message(30), 30).queue_offset == 30
    assert numbers(open_store(disk.killed())) == list(range(31))


def test_a_roll_into_a_full_disk_changes_nothing() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    while store.max_log_offset < store.config.log_file_size - 2_000:
        store.append(message(1), 1)
    disk.fail("create", errno.ENOSPC)
    before = store.max_log_offset
    with pytest.raises(DiskFull):
        store.append(message(2, size=3_000), 2)
    assert store.max_log_offset == before
    store.append(message(3), 3)
    disk.heal()
    stored = store.append(message(2, size=3_000), 2)
    assert stored.log_offset == store.config.log_file_size


def test_a_store_opens_on_a_full_disk_and_can_be_read() -> None:
    disk = RecordingDisk(capacity_bytes=192 * 1024)
    store = open_store(disk)
    number = send_until_full(store, 0)
    again = open_store(disk.killed())
    assert numbers(again) == list(range(number))
    with pytest.raises(DiskFull):
        while True:
            again.append(message(0), 1)


def test_a_store_opens_on_a_full_disk() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(50):
        store.append(message(number), number)
    disk = disk.killed()
    for operation in ("create", "reserve"):
        disk.fail(operation, errno.ENOSPC)
    for prefix in ("commitlog/", "consumequeue/", "sparrowmq/queues"):
        disk.fail("write", errno.ENOSPC, path_prefix=prefix)
    store = open_store(disk)
    assert numbers(store) == list(range(50))
    with pytest.raises(DiskFull):
        store.append(message(50), 50)
    disk.heal()
    store.tick(1)
    assert store.append(message(50), 50).queue_offset == 50
    assert numbers(open_store(disk.killed())) == list(range(51))


def test_a_normal_stop_on_a_full_disk_loses_nothing() -> None:
    disk = RecordingDisk(capacity_bytes=192 * 1024)
    store = open_store(disk)
    number = send_until_full(store, 0)
    store.close()
    disk.capacity_bytes = MIB
    assert numbers(open_store(disk)) == list(range(number))


@pytest.mark.parametrize("ratio", [0.91, 0.86])
def test_messages_are_refused_from_90_percent_on_until_the_disk_is_below_85(ratio: float) -> None:
    disk = RecordingDisk(capacity_bytes=MIB)
    store = open_store(disk)
    store.append(message(0), 0)
    used = MIB - disk.usage().free_bytes
    disk.capacity_bytes = int(used / 0.91)
    store.clean(1)
    with pytest.raises(DiskFull, match="91%"):
        store.append(message(1), 1)
    store.tick(2)
    disk.capacity_bytes = int(used / ratio)
    store.clean(2)
    with pytest.raises(DiskFull):
        store.append(message(1), 1)
    disk.capacity_bytes = int(used / 0.7)
    store.tick(3)
    disk.capacity_bytes = int((disk.capacity_bytes - disk.usage().free_bytes) / 0.84)
    store.clean(3)
    assert store.append(message(1), 1).queue_offset == 1
