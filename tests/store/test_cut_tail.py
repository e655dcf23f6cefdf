"""Cutting the end of a log: it is kept aside, and the store is as if it had never been there."""

from contextlib import suppress
from random import Random

import pytest

from sparrowmq.disk.errors import StoreLocked
from sparrowmq.store.epochs import LogStart
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.layout import QUARANTINE_DIR
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.recovery.cut_tail import cut_tail, extent_of, tail_from
from sparrowmq.store.store import Store
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import CRASH_STEPS
from tests.store.stores import SMALL, body_of, message

TOPICS = ("orders", "payments")


def filled(disk: RecordingDisk, numbers: range, now_ms: int) -> None:
    """A life of a store."""
    store = Store.open(SMALL, disk, now_ms)
    for number in numbers:
        store.append(message(number, TOPICS[number % 2], size=500), now_ms)
    store.close()


def parted(first: int, second: int) -> tuple[RecordingDisk, int]:
    """A store of two lives, and where the second one begins."""
    disk = RecordingDisk()
    filled(disk, range(first), 1_000)
    filled(disk, range(first, first + second), 2_000)
    return disk, extent_of(disk).lineage[1].start


def contents(disk: RecordingDisk) -> dict[object, object]:
    """Records, queues and lineage."""
    files = StoreFiles(disk)
    found: dict[object, object] = {key: list(files.units(*key)) for key in files.queues()}
    return found | {"records": list(files.records()), "extent": extent_of(disk)}


@pytest.mark.parametrize("second", [1, 10, 100], ids=lambda n: f"{n} records past the cut")
@pytest.mark.parametrize("first", [1, 40], ids=lambda n: f"{n} before")
def test_a_cut_store_equals_one_that_never_had_the_tail(first: int, second: int) -> None:
    disk, cut_at = parted(first, second)
    before = RecordingDisk()
    filled(before, range(first), 1_000)
    tail = tail_from(disk, cut_at)
    assert (tail.records, tail.first_ms, tail.last_ms) == (second, 2_000, 2_000)
    cut_tail(disk, SMALL, cut_at, 3_000, lambda _: None)
    assert contents(disk) == contents(before)


def test_what_is_cut_is_kept() -> None:
    disk, cut_at = parted(40, 100)
    lost = b"".join(message(number, size=500).body for number in range(40, 140))
    end = extent_of(disk).end
    kept = cut_tail(disk, SMALL, cut_at, 3_000, lambda _: None)
    assert [path.startswith(QUARANTINE_DIR) for path in kept] == [True] * len(kept)
    size = sum(disk.size(path) for path in kept)
    assert size >= end - cut_at >= len(lost)
    data = b"".join(disk.open(path).read(0, disk.size(path)) for path in kept)
    for number in range(40, 140):
        assert message(number, size=500).body in data, number


def test_the_cut_store_continues_as_a_copy() -> None:
    disk, cut_at = parted(40, 10)
    cut_tail(disk, SMALL, cut_at, 3_000, lambda _: None)
    store = Store.open(SMALL, disk, 4_000, is_copy=True)
    assert (store.max_log_offset, store.epochs.lineage) == (cut_at, [LogStart(1_000, 0)])
    assert store.max_offset("orders", 0) == 20
    store.close()


def test_a_queue_that_began_past_the_cut_begins_again() -> None:
    disk = RecordingDisk()
    filled(disk, range(4), 1_000)
    store = Store.open(SMALL, disk, 2_000)
    for number in range(5):
        store.append(message(number, "late"), 2_000)
    store.close()
    cut_tail(disk, SMALL, extent_of(disk).lineage[1].start, 3_000, lambda _: None)
    store = Store.open(SMALL, disk, 4_000, is_copy=True)
    assert store.max_offset("late", 0) == 0
    store.close()


def test_the_log_is_cut_between_records_only() -> None:
    disk, cut_at = parted(4, 4)
    before = contents(disk)
    with pytest.raises(ValueError, match="no record ends at log offset"):
        cut_tail(disk, SMALL, cut_at - 1, 3_000, lambda _: None)
    assert contents(disk) == before


def test_a_store_in_use_is_not_cut() -> None:
    disk, cut_at = parted(4, 4)
    store = Store.open(SMALL, disk, 3_000, is_copy=True)
    with pytest.raises(StoreLocked):
        cut_tail(disk, SMALL, cut_at, 3_000, lambda _: None)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7))
def test_a_power_cut_in_between_leaves_a_store_that_is_whole_and_can_be_cut(seed: int) -> None:
    rng = Random(seed)
    disk, cut_at = parted(40, 60)
    before = RecordingDisk()
    filled(before, range(40), 1_000)
    for call in range(1 + seed, 300, 7):
        attempt = disk.killed()
        attempt.cut_at(call)
        with suppress(PowerCut):
            cut_tail(attempt, SMALL, cut_at, 3_000, lambda _: None)
        found = attempt.crashed(rng)
        damage = Damaged()
        Store.open(SMALL, found, 4_000, damage, is_copy=True).close()
        if extent_of(found).end > cut_at:
            cut_tail(found, SMALL, cut_at, 5_000, damage)
        # What is being cut may be torn, and is reported; nothing before it.
        assert all(place >= cut_at for place in damage.places), call
        assert without_lineage(found) == without_lineage(before), call


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_a_cut_that_is_repeated_after_a_crash_has_kept_every_record(power: bool, step: int) -> None:
    """As an operator repeats `store follow`, without a start of the broker in between."""
    disk, cut_at = parted(40, 60)
    before = RecordingDisk()
    filled(before, range(40), 1_000)
    cut_off = {body_of(number, 500) for number in range(40, 100)}
    for call in range(1, 2_000, step):
        attempt = disk.killed()
        attempt.cut_at(call)
        try:
            cut_tail(attempt, SMALL, cut_at, 3_000, lambda _: None)
            break
        except PowerCut:
            found = attempt.crashed(Random(call)) if power else attempt.killed()
        if extent_of(found).end > cut_at:
            cut_tail(found, SMALL, cut_at, 5_000, lambda _: None)
        Store.open(SMALL, found, 6_000, is_copy=True).close()
        assert without_lineage(found) == without_lineage(before), call
        kept = b"".join(
            data for path, data in found.files().items() if path.startswith(QUARANTINE_DIR)
        )
        assert [body for body in cut_off if body not in kept] == [], call
    assert call > 100


class Damaged:
    """Log offsets at which damage was reported."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def __call__(self, event: Damage | StartProgress) -> None:
        if isinstance(event, Damage):
            self.places.append(int(event.path.rpartition("/")[2]) + event.position)


def without_lineage(disk: RecordingDisk) -> dict[object, object]:
    """A cut that came to the log and not to the lineage is complete: nothing is left that parts."""
    return contents(disk) | {"extent": extent_of(disk).end}
