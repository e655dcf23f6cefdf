"""A rebuild recreates queues and index from the log, and keeps what the log does not contain."""

from contextlib import suppress
from random import Random

import pytest

from sparrowmq.store.config import StoreConfig
from sparrowmq.store.errors import StoreCorrupted, StoreError
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.recovery.rebuild import Rebuilt, config_of, rebuild
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.filled_stores import COUNT, derived, everything, filled, with_an_old_topic
from tests.store.stores import SMALL, message, open_store, with_sizes

WORK = "sparrowmq/rebuild"


def rebuilt(disk: RecordingDisk, config: StoreConfig = SMALL) -> Rebuilt:
    return rebuild(disk, config, 1, _fail_on_damage)


def _fail_on_damage(event: Damage | StartProgress) -> None:
    assert isinstance(event, StartProgress), event


def stopped() -> RecordingDisk:
    disk = RecordingDisk()
    filled(disk).close()
    return disk


def with_an_expired_queue() -> RecordingDisk:
    """Ten messages of a topic were all there was of it, and their log file is gone."""
    disk = with_an_old_topic()
    disk.unlink("commitlog/00000000000000000000")
    disk.sync_dir("commitlog")
    return disk


@pytest.mark.parametrize("lost", ["consumequeue/", "sparrowmq/queues."])
def test_a_queue_whose_messages_have_all_expired_continues_after_them(lost: str) -> None:
    """Its files say how far it came, and so does the snapshot; one of both is enough."""
    disk = with_an_expired_queue()
    for path in [path for path in disk.files() if path.startswith(lost)]:
        disk.unlink(path)
    rebuilt(disk)
    store = open_store(disk)
    assert store.queue_range("old", 0) == (10, 10)
    assert store.append(message(10, "old"), 201).queue_offset == 10
    least, most = store.queue_range("orders", 0)
    assert 0 < least < most == 200


def test_a_deleted_topic_stays_deleted() -> None:
    disk = RecordingDisk()
    store = filled(disk)
    store.append(message(0, "other"), COUNT)
    store.delete_topic("orders", 1)
    store.close()
    assert rebuilt(disk).queues == 1
    assert everything(open_store(disk)) == []


def test_leftovers_of_an_interrupted_rebuild_are_not_used() -> None:
    disk = stopped()
    before = {folder: derived(disk, folder) for folder in ("consumequeue", "index")}
    disk.mkdir(f"{WORK}/consumequeue/orders/7")
    disk.poke(f"{WORK}/consumequeue/orders/7/{0:020d}", b"half" * 50)
    disk.poke(f"{WORK}/old-consumequeue/orders/0/{0:020d}", b"swapped out before the cut")
    assert rebuilt(disk).queues == 3
    assert {folder: derived(disk, folder) for folder in before} == before
    assert derived(disk, WORK) == {}
    assert not disk.exists(WORK)


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_during_a_rebuild_costs_nothing(seed: int) -> None:
    rng = Random(seed)
    disk = with_an_expired_queue()
    expected = open_store(disk.killed()).queue_range("orders", 0)
    for call in range(1 + seed, 200, 9):
        attempt = disk.killed()
        attempt.cut_at(call)
        with suppress(PowerCut):
            rebuilt(attempt)
        store = open_store(attempt.crashed(rng))
        assert store.queue_range("orders", 0) == expected, call
        assert store.queue_range("old", 0) == (10, 10), call


@pytest.mark.parametrize("seed", range(4))
def test_a_finished_rebuild_is_durable(seed: int) -> None:
    disk = stopped()
    rebuilt(disk)
    after = {folder: derived(disk, folder) for folder in ("consumequeue", "index")}
    crashed = disk.crashed(Random(seed))
    assert {folder: derived(crashed, folder) for folder in after} == after


def test_the_store_can_be_used_after_a_rebuild_that_was_refused() -> None:
    disk = stopped()
    before = disk.files()
    with pytest.raises(StoreCorrupted):
        rebuilt(disk, with_sizes(log_file_size=8 * 1024))
    changed = {path for path, data in disk.files().items() if before.get(path) != data}
    assert all(path.startswith(WORK) for path in changed)
    assert everything(open_store(disk)) == list(range(COUNT))


def test_the_sizes_of_a_store_are_read_from_its_files() -> None:
    disk = stopped()
    layout = IndexLayout(SMALL.index_slots, SMALL.index_entries)

    def sizes() -> tuple[int, int, int, int]:
        found = config_of(disk, layout)
        return (
            found.log_file_size,
            found.queue_file_units,
            found.index_slots,
            found.index_entries,
        )

    expected = (SMALL.log_file_size, SMALL.queue_file_units, 64, 512)
    assert sizes() == expected
    for number in (0, 1):
        disk.unlink(f"sparrowmq/queues.{number}")
    assert sizes() == expected, "the queues' files tell it too"
    assert config_of(RecordingDisk()) == StoreConfig()


@pytest.mark.parametrize(
    "path",
    [
        "index/notes.txt",
        "consumequeue/notes.txt",
        "consumequeue/orders/notes.txt",
        "consumequeue/orders/0/notes.txt",
        "consumequeue/orders/0/deep/00000000000000000000",
        "sparrowmq/rebuild/notes.txt",
        "sparrowmq/rebuild/kept/00000000000000000000",
    ],
)
def test_files_of_others_among_those_to_be_replaced_are_named_and_stay(path: str) -> None:
    disk = stopped()
    disk.mkdir(path.rpartition("/")[0])
    disk.open(path, create=True).close()
    before = disk.files()
    with pytest.raises(StoreError, match=f"{path} is not a file of a store"):
        rebuilt(disk)
    assert disk.files() == before
    disk.unlink(path)
    rebuilt(disk)
