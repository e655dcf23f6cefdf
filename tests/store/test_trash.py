"""Deleting costs the writer a rename, however much there is to delete; a worker does the rest."""

import errno
from random import Random

import pytest

from sparrowmq.store.layout import TRASH_DIR
from sparrowmq.store.store import Store
from sparrowmq.store.trash import Trash
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, flush, message, numbers, open_store

HOUR = 3_600_000


def in_trash(disk: RecordingDisk) -> list[str]:
    return [path for path in disk.files() if path.startswith(f"{TRASH_DIR}/")]


def wide(disk: RecordingDisk, queues: int) -> Store:
    """A store with a topic of so many queues, all of them on disk."""
    store = open_store(disk)
    for queue_id in range(queues):
        store.append(message(queue_id, queue_id=queue_id), 1)
    while sum(path.startswith("consumequeue/") for path in disk.files()) < queues:
        store.tick(1)
    flush(store, disk)
    return store


@pytest.mark.parametrize("queues", [1, 100])
def test_deleting_a_topic_is_one_rename_for_any_number_of_queues(queues: int) -> None:
    disk = RecordingDisk()
    store = wide(disk, queues)
    before = disk.calls.copy()
    assert store.delete_topic("orders", 2)
    done = disk.calls - before
    assert done["replace"] == 2  # the file of epochs, and the topic
    assert done["unlink"] == 1  # what an interrupted write of the first may have left
    assert done["rmdir"] == 0
    assert len(in_trash(disk)) == queues
    store.trash.empty()
    assert in_trash(disk) == []


def test_expired_files_of_log_and_index_are_renamed_and_the_next_step_needs_their_space() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for day in range(10):
        for number in range(60):
            store.append(message(day * 60 + number), day * 24 * HOUR)
        store.tick(day * 24 * HOUR)
    flush(store, disk)
    before = disk.calls.copy()
    deleted = store.clean_some(9 * 24 * HOUR + 4 * HOUR)
    assert deleted
    done = disk.calls - before
    assert (done["unlink"], done["rmdir"]) == (0, 0)
    assert len(in_trash(disk)) > 2 * len(deleted)  # files of queues and index, too
    kept = numbers(store)
    store.trash.empty()
    assert in_trash(disk) == []
    assert numbers(store) == kept


def test_what_a_crash_leaves_in_the_trash_goes_with_the_next_life() -> None:
    disk = RecordingDisk()
    assert wide(disk, 3).delete_topic("orders", 2)
    for restart in (disk.killed(), disk.crashed(Random(1))):
        again = open_store(restart)
        left = in_trash(restart)
        again.append(message(7), 3)
        again.tick(3)
        assert again.delete_topic("orders", 4)  # next to the leftovers, under another name
        assert len(in_trash(restart)) > len(left)
        again.trash.empty()
        assert in_trash(restart) == []


def test_a_topic_that_cannot_be_renamed_for_want_of_space_is_deleted_at_once() -> None:
    disk = RecordingDisk()
    store = wide(disk, 3)
    disk.fail("replace", errno.ENOSPC, path_prefix=TRASH_DIR)
    assert store.delete_topic("orders", 2)
    assert disk.listdir("consumequeue") == []
    assert in_trash(disk) == []


@pytest.mark.parametrize("has_space", [True, False])
def test_files_of_others_in_a_deleted_topic_and_in_the_trash_stay(has_space: bool) -> None:
    disk = RecordingDisk()
    store = wide(disk, 2)
    if not has_space:
        disk.fail("replace", errno.ENOSPC, path_prefix=TRASH_DIR)
    mine = b"an operator's"
    for path in ("consumequeue/orders/why.txt", "consumequeue/orders/0/copy", f"{TRASH_DIR}/a/b"):
        disk.mkdir(path.rpartition("/")[0])
        disk.poke(path, mine)
    assert store.delete_topic("orders", 2)
    for restart in (False, True):
        if restart:
            disk = disk.killed()
            store = open_store(disk)
            assert not list(store.queues())
        store.trash.empty()
        inside = [path for path in disk.files() if path.startswith(("consumequeue/", TRASH_DIR))]
        assert [disk.files()[path] for path in inside] == [mine] * 3
        assert {path.rpartition("/")[2] for path in inside} == {"why.txt", "copy", "b"}


def test_what_is_missing_need_not_be_deleted() -> None:
    disk = RecordingDisk()
    Trash(disk).put(f"commitlog/{0:020d}")
    assert disk.files() == {}


def test_a_topic_recreated_during_the_removal_of_the_old_one_keeps_its_messages() -> None:
    disk = RecordingDisk()
    store = wide(disk, 3)
    assert store.delete_topic("orders", 2)
    store.append(message(7), 3)
    store.tick(3)
    store.trash.empty()
    flush(store, disk)
    assert numbers(store) == numbers(open_store(disk.killed())) == [7]
    assert SMALL.queue_file_size == disk.size("consumequeue/orders/0/00000000000000000000")
