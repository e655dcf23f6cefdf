"""A failed write or sync ends acknowledgements: it is unknown what reached the disk."""

import errno
from random import Random

import pytest

from sparrowmq.disk.syncer import sync_plan
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import Told, batch, flush, message, numbers, open_store


def store_with_messages(disk: RecordingDisk) -> Store:
    store = open_store(disk)
    for number in range(10):
        store.append(message(number), number)
    flush(store, disk)
    return store


def test_after_a_failed_sync_nothing_is_durable_and_appends_are_refused() -> None:
    """#2706, #3129"""
    disk = RecordingDisk()
    store = store_with_messages(disk)
    durable = store.durable_log_offset
    store.append(message(10), 10)
    disk.fail("sync", errno.EIO, times=1)
    plan = store.begin_flush()
    assert plan is not None
    with pytest.raises(OSError, match="Input/output error") as failed:
        sync_plan(disk, plan)
    store.fail(f"fsync failed: {failed.value}")
    assert store.has_failed
    assert store.durable_log_offset == durable
    with pytest.raises(StoreStopped, match="fsync failed"):
        store.append(message(11), 11)
    with pytest.raises(StoreStopped):
        store.append_batch(batch([message(11)]), 11)
    # A later sync would succeed, as the kernel forgets the error: it must not count.
    store.tick(1_000)
    with pytest.raises(StoreStopped):
        store.append(message(11), 11)
    assert numbers(store) == list(range(11)), "still readable"
    store.close()
    assert disk.exists("abort"), "the next start must recover"


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_failed_write_stops_the_store(error: int) -> None:
    """#7016: a file system that became read-only."""
    disk = RecordingDisk()
    store = store_with_messages(disk)
    disk.fail("write", error)
    with pytest.raises(StoreStopped, match="writing failed"):
        store.append(message(10), 10)
    disk.heal()
    with pytest.raises(StoreStopped):
        store.append(message(10), 10)
    store.close()
    assert numbers(open_store(disk.killed())) == list(range(10))


def test_a_failed_write_of_a_queue_stops_the_store_and_loses_nothing() -> None:
    disk = RecordingDisk()
    store = store_with_messages(disk)
    disk.fail("write", errno.EIO, path_prefix="consumequeue/")
    store.tick(1)
    assert store.has_failed
    store.close()
    assert numbers(open_store(disk.killed())) == list(range(10))


def test_only_one_flush_is_under_way_and_a_repeated_one_covers_more() -> None:
    disk = RecordingDisk()
    store = store_with_messages(disk)
    store.append(message(10), 10)
    plan = store.begin_flush(urgent=True)
    assert plan is not None
    end = store.max_log_offset
    store.append(message(11), 11)
    assert store.begin_flush() is None
    sync_plan(disk, plan)
    store.finish_flush(plan)
    assert store.durable_log_offset == end
    flush(store, disk)
    assert store.durable_log_offset == store.max_log_offset


def test_an_urgent_flush_syncs_the_log_alone() -> None:
    disk = RecordingDisk()
    store = store_with_messages(disk)
    store.append(message(10), 10)
    store.tick(1_000)
    store.tick(1_001)
    plan = store.begin_flush(urgent=True)
    assert plan is not None
    assert (plan.files, plan.derived) == (["commitlog/00000000000000000000"], [])
    sync_plan(disk, plan)
    store.finish_flush(plan)
    following = store.begin_flush()
    assert following is not None
    assert "consumequeue/orders/0/00000000000000000000" in following.derived


def test_a_flush_that_was_abandoned_is_completed_by_the_stop() -> None:
    """A broker that stops cancels the task that waits for the syncer."""
    for seed in range(10):
        disk = RecordingDisk()
        store = open_store(disk)
        for number in range(200):
            store.append(message(number), number)
        store.tick(1_000)
        store.tick(1_001)
        assert store.begin_flush() is not None
        store.close()
        told = Told()
        assert numbers(open_store(disk.crashed(Random(seed)), report=told)) == list(range(200))
        assert not told.damage
