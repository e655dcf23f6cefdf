"""A repair keeps every readable message and leaves a store without damage."""

from collections.abc import Callable

import pytest

from sparrowmq.protocol.record import check_record
from sparrowmq.store.errors import StoreCorrupted
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.inspect.verify import StoreFinding, verify
from sparrowmq.store.layout import log_path
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.recovery.repair import RepairPlan, RepairStep, carry_out, plan_repair
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import (
    SMALL,
    number_of,
    numbers,
    open_store,
    read_all,
    stopped_store,
)

COUNT, QUEUES = 180, 2
LAYOUT = IndexLayout(SMALL.index_slots, SMALL.index_entries)
SIZE = SMALL.log_file_size

Break = Callable[["Broken"], None]


@pytest.fixture(scope="module")
def stopped() -> RecordingDisk:
    """A store of more than two log files, stopped normally."""
    return stopped_store(COUNT, QUEUES)


@pytest.fixture(scope="module")
def spans(stopped: RecordingDisk) -> dict[int, tuple[int, int]]:
    """Start and end of every record in the log, by the number of its message."""
    store = open_store(stopped.killed())
    records = (each for queue in range(QUEUES) for each in read_all(store, queue_id=queue))
    return {
        number_of(each): (each.log_offset, each.log_offset + each.size)
        for each in sorted(records, key=lambda each: each.log_offset)
    }


class Broken:
    """A copy of the store to damage, and the messages that are gone with the damage."""

    def __init__(self, disk: RecordingDisk, spans: dict[int, tuple[int, int]]) -> None:
        self.disk = disk.killed()
        self.spans = spans
        self.gone: set[int] = set()

    def write(self, start: int, data: bytes) -> None:
        """Overwrite log bytes; every message that they touch is gone."""
        path = log_path(start - start % SIZE)
        old = self.disk.files()[path]
        at = start % SIZE
        self.disk.poke(path, old[:at] + data + old[at + len(data) :])
        self.lose(start, start + len(data))

    def lose(self, start: int, end: int) -> None:
        """The messages in a range of the log are gone."""
        self.gone |= {n for n, (begin, stop) in self.spans.items() if begin < end and stop > start}

    def as_apaches(self) -> None:
        """Without our own marks, as a store that Apache wrote."""
        for name in ("queues.0", "queues.1", "mark", "index-mark"):
            self.disk.unlink(f"sparrowmq/{name}")


def plan_of(disk: RecordingDisk) -> RepairPlan:
    return plan_repair(disk, LAYOUT, lambda _: None)


def repair(disk: RecordingDisk) -> list[RepairStep]:
    def nothing(_: Damage | StartProgress) -> None:
        pass

    return carry_out(disk, plan_of(disk), LAYOUT, 5_000, nothing)


def findings(disk: RecordingDisk) -> list[str]:
    found: list[str] = []

    def collect(event: StoreFinding | StartProgress) -> None:
        if isinstance(event, StoreFinding):
            found.append(str(event))

    verify(disk, collect, LAYOUT)
    return found


def served(disk: RecordingDisk) -> set[int]:
    store = open_store(disk.killed())
    return {number for queue in range(QUEUES) for number in numbers(store, queue_id=queue)}


def flip_a_body(broken: Broken) -> None:
    start, end = broken.spans[40]
    broken.write(end - 60, b"\xff")
    assert start < end - 60


def zero_two_sectors(broken: Broken) -> None:
    broken.write(4096, bytes(1024))


def garbage_over_a_file_boundary(broken: Broken) -> None:
    broken.write(SIZE - 300, b"\xee" * 300)
    broken.write(SIZE, b"\xee" * 300)


def first_record(broken: Broken) -> None:
    broken.write(0, b"\0" * 16)


def blank_at_the_end_of_a_file(broken: Broken) -> None:
    ends = [end for _, end in broken.spans.values() if end < SIZE]
    broken.write(max(ends) + 4, b"\x01\x02\x03\x04")


def file_cut_in_the_middle(broken: Broken) -> None:
    path = log_path(SIZE)
    broken.disk.poke(path, broken.disk.files()[path][:5000])
    broken.lose(SIZE + 5000, 2 * SIZE)


def file_missing_in_the_middle(broken: Broken) -> None:
    broken.disk.unlink(log_path(SIZE))
    broken.lose(SIZE, 2 * SIZE)


def garbage_after_the_end(broken: Broken) -> None:
    end = max(end for _, end in broken.spans.values())
    broken.write(end + 10, b"\xaa" * 700)


def garbage_far_after_the_end_and_a_stray_file(broken: Broken) -> None:
    broken.write(3 * SIZE - 40, b"\xaa" * 40)
    broken.disk.poke(log_path(3 * SIZE), b"\xbb" * SIZE)


def queue_file_of_zeros(broken: Broken) -> None:
    path = "consumequeue/orders/0/00000000000000000000"
    broken.disk.poke(path, bytes(len(broken.disk.files()[path])))


def queue_file_cut(broken: Broken) -> None:
    path = "consumequeue/orders/1/00000000000000000000"
    broken.disk.poke(path, broken.disk.files()[path][:333])


def index_file_of_noise(broken: Broken) -> None:
    path = next(path for path in broken.disk.files() if path.startswith("index/"))
    data = broken.disk.files()[path]
    broken.disk.poke(path, data[:40] + b"\x7f" * 800 + data[840:])


def checkpoint_ahead_of_the_log(broken: Broken) -> None:
    broken.disk.poke("checkpoint", (10**14).to_bytes(8, "big") * 3 + bytes(4072))


def checkpoint_cut(broken: Broken) -> None:
    broken.disk.poke("checkpoint", b"\0" * 17)


LOG_DAMAGE = [
    flip_a_body,
    zero_two_sectors,
    garbage_over_a_file_boundary,
    first_record,
    blank_at_the_end_of_a_file,
    file_cut_in_the_middle,
    file_missing_in_the_middle,
    garbage_after_the_end,
    garbage_far_after_the_end_and_a_stray_file,
]
OTHER_DAMAGE = [
    queue_file_of_zeros,
    queue_file_cut,
    index_file_of_noise,
    checkpoint_ahead_of_the_log,
    checkpoint_cut,
]


@pytest.mark.parametrize("is_apaches", [False, True], ids=["ours", "apaches"])
@pytest.mark.parametrize("damage", [*LOG_DAMAGE, *OTHER_DAMAGE], ids=lambda each: each.__name__)
def test_a_repaired_store_is_whole_and_has_every_message_that_was_not_damaged(
    stopped: RecordingDisk, spans: dict[int, tuple[int, int]], damage: Break, is_apaches: bool
) -> None:
    broken = Broken(stopped, spans)
    damage(broken)
    if is_apaches:
        broken.as_apaches()
    done = repair(broken.disk)
    assert done
    assert findings(broken.disk) == []
    assert served(broken.disk) == set(range(COUNT)) - broken.gone
    assert plan_of(broken.disk).steps == []


@pytest.mark.parametrize("damage", LOG_DAMAGE, ids=lambda each: each.__name__)
def test_what_is_overwritten_or_cut_is_kept_with_all_its_bytes(
    stopped: RecordingDisk, spans: dict[int, tuple[int, int]], damage: Break
) -> None:
    broken = Broken(stopped, spans)
    damage(broken)
    before = broken.disk.files()
    for step in repair(broken.disk):
        if not step.kept:
            continue
        after = broken.disk.files()
        kept = b"".join(after[path] for path in step.kept)
        start = int(step.path.rpartition("/")[2]) + step.position
        log = b"".join(
            before.get(log_path(each), b"").ljust(SIZE, b"\0") for each in range(0, 5 * SIZE, SIZE)
        )
        assert kept[: step.length] == log[start : start + step.length]


def test_a_hole_becomes_a_record_of_its_size_so_that_apache_reads_on(
    stopped: RecordingDisk, spans: dict[int, tuple[int, int]]
) -> None:
    broken = Broken(stopped, spans)
    flip_a_body(broken)
    start, end = spans[40]
    repair(broken.disk)
    filler = check_record(broken.disk.files()[log_path(0)], start, start)
    assert (filler.size, filler.is_delivered) == (end - start, False)


def test_a_plan_changes_nothing_and_lists_the_steps_of_a_repair(
    stopped: RecordingDisk, spans: dict[int, tuple[int, int]]
) -> None:
    broken = Broken(stopped, spans)
    zero_two_sectors(broken)
    before = broken.disk.files()
    plan = plan_of(broken.disk)
    assert broken.disk.files() == before
    assert plan.records == COUNT - len(broken.gone)
    done = repair(broken.disk)
    assert [(each.path, each.length) for each in done] == [
        (each.path, each.length) for each in plan.steps
    ]


def test_an_intact_store_needs_no_repair_and_stays_unchanged(stopped: RecordingDisk) -> None:
    disk = stopped.killed()
    before = disk.files()
    assert repair(disk) == []
    assert disk.files() == before


def test_a_file_of_another_store_is_refused_before_anything_changes(
    stopped: RecordingDisk,
) -> None:
    disk = stopped.killed()
    disk.poke(log_path(5 * SIZE), bytes(2 * SIZE))
    before = disk.files()
    with pytest.raises(StoreCorrupted, match="another store"):
        repair(disk)
    assert disk.files() == before
