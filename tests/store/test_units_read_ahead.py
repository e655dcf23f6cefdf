"""One read of a queue's file serves several pulls, and never returns units that are gone."""

from sparrowmq.store.consume_queue import UNIT, ConsumeQueue, QueueFiles
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.cold_disk import ColdDisk
from tests.store.stores import SMALL

COUNT = 600


def filled(disk: RecordingDisk) -> ConsumeQueue:
    queue = ConsumeQueue("orders", 0, QueueFiles(SMALL, disk))
    extend(queue, COUNT, size=1)
    return queue


def extend(queue: ConsumeQueue, up_to: int, *, size: int) -> None:
    for offset in range(queue.max_offset, up_to):
        queue.tail += UNIT.pack(offset, size, 0)
        queue.max_offset += 1
    queue.write_tail()


def units(queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int, int]]:
    """Log offset and size of each; reads end with their file and are continued."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        data = queue.units(offset + len(found), count - len(found))
        assert data, "every unit is in memory or in a file"
        found += [(log_offset, size) for log_offset, size, _ in UNIT.iter_unpack(data)]
    return found


def test_every_unit_is_found_for_any_start_and_end_of_a_read() -> None:
    queue = filled(RecordingDisk())
    for step in (1, 7, 32, 100):
        for offset in [*range(0, COUNT - step, step), COUNT - step, 3]:
            expected = [(at, 1) for at in range(offset, offset + step)]
            assert units(queue, offset, step) == expected


def test_a_consumer_of_a_backlog_does_not_read_the_file_for_every_pull() -> None:
    disk = RecordingDisk()
    queue = filled(disk)
    queue.units(0, 8)
    disk.calls.clear()
    assert [queue.units(offset, 8) for offset in range(8, 32, 8)]
    assert not disk.calls


def test_truncated_units_are_not_read_from_memory() -> None:
    queue = filled(RecordingDisk())
    assert units(queue, 0, 8) == [(at, 1) for at in range(8)]
    queue.truncate(4)
    extend(queue, COUNT, size=2)
    assert units(queue, 0, 8) == [(at, 1 if at < 4 else 2) for at in range(8)]


def test_a_recreated_queue_has_no_units_in_memory() -> None:
    queue = filled(RecordingDisk())
    assert units(queue, 0, 8)
    queue.delete()
    extend(queue, COUNT, size=3)
    assert units(queue, 0, 8) == [(at, 3) for at in range(8)]


def test_statistics_read_the_same_units_and_keep_the_read_ahead_ones() -> None:
    disk = RecordingDisk()
    queue = filled(disk)
    queue.units(0, 8)
    for offset in (0, 50, 130, COUNT - 140, COUNT - 5):
        found = queue.units_at_once(offset, 10)
        assert found is not None
        assert [at for at, _, _ in UNIT.iter_unpack(found)] == list(
            range(offset, offset + len(found) // UNIT.size)
        )
    disk.calls.clear()
    assert queue.units(8, 8)
    assert not disk.calls


def test_statistics_do_not_wait_for_the_device() -> None:
    queue = filled(ColdDisk())
    assert queue.units_at_once(0, 8) is None
    newest = queue.units_at_once(COUNT - 5, 8)
    assert newest is not None
    assert len(newest) == 5 * UNIT.size
