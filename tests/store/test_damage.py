"""Flipped and cut bytes: no damaged message is served, no intact one is lost, all is reported."""

from random import Random

import msgspec
import pytest

from sparrowmq.protocol.record import RecordError, check_record
from sparrowmq.protocol.record_layout import MAGIC_V1
from sparrowmq.store.errors import StoreCorrupted
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import (
    SMALL,
    Told,
    message,
    number_of,
    numbers,
    open_store,
    read_all,
    stopped_store,
)

QUEUES = 2
COUNT = 180


@pytest.fixture(scope="module")
def stopped() -> RecordingDisk:
    """A store of two and a bit log files, stopped normally."""
    return stopped_store(COUNT, QUEUES)


@pytest.fixture(scope="module")
def spans(stopped: RecordingDisk) -> list[tuple[int, int, int]]:
    """Start, end and number of every record."""
    found = []
    store = open_store(stopped.killed())
    for queue_id in range(QUEUES):
        for record in read_all(store, queue_id=queue_id):
            start = record.log_offset
            found.append((start, start + record.size, number_of(record)))
    return sorted(found)


def log_path(log_offset: int) -> str:
    start = log_offset - log_offset % SMALL.log_file_size
    return f"commitlog/{start:020d}"


def all_numbers(store: Store) -> set[int]:
    """Every message that is served; each is checked against its number."""
    return {number for queue_id in range(QUEUES) for number in numbers(store, queue_id=queue_id)}


def damaged(disk: RecordingDisk, path: str, position: int, flip: int) -> RecordingDisk:
    copy = disk.killed()
    data = bytearray(copy.files()[path])
    data[position] ^= flip
    copy.poke(path, bytes(data))
    return copy


@pytest.mark.slow
def test_a_flipped_byte_in_the_log_affects_only_its_own_message(
    stopped: RecordingDisk, spans: list[tuple[int, int, int]]
) -> None:
    rng = Random(4)
    for start, end, number in spans[:: len(spans) // 3]:
        for position in range(start, end):
            told = Told()
            flip = rng.randrange(1, 256)
            path = log_path(position)
            disk = damaged(stopped, path, position % SMALL.log_file_size, flip)
            store = open_store(disk, report=told)
            assert all_numbers(store) == set(range(COUNT)) - {number}
            assert told.damage, "the damage was not reported"


def test_after_a_crash_a_flipped_byte_is_kept_aside_and_all_later_messages_stay(
    stopped: RecordingDisk, spans: list[tuple[int, int, int]]
) -> None:
    for start, end, number in spans[1 :: len(spans) // 3]:
        for position in range(start, end, 11):
            disk = damaged(stopped, log_path(position), position % SMALL.log_file_size, 0x41)
            # Without marks nothing is known to be intact: the whole log is scanned.
            disk.unlink("sparrowmq/queues.0")
            disk.unlink("sparrowmq/queues.1")
            disk.open("abort", create=True)
            told = Told()
            store = open_store(disk, report=told)
            assert all_numbers(store) == set(range(COUNT)) - {number}
            assert [damage.position for damage in told.damage] == [start % SMALL.log_file_size]
            assert f"sparrowmq/quarantine/{start:020d}-{end - start}" in disk.files()
            log = disk.files()[log_path(start)]
            check_record(log, start % SMALL.log_file_size, start)
            # The place is valid now: nothing is found the next time.
            again = Told()
            assert all_numbers(open_store(disk.killed(), report=again)) == all_numbers(store)
            assert not again.damage


def test_damage_over_the_boundary_of_two_files_costs_neither_of_them(
    stopped: RecordingDisk, spans: list[tuple[int, int, int]]
) -> None:
    size = SMALL.log_file_size
    disk = stopped.killed()
    gone = {number for start, end, number in spans if start < size + 100 and end > size - 200}
    for path, part in ((log_path(0), slice(size - 200, size)), (log_path(size), slice(0, 100))):
        data = bytearray(disk.files()[path])
        data[part] = b"\xee" * len(data[part])
        disk.poke(path, bytes(data))
    for name in ("queues.0", "queues.1"):
        disk.unlink(f"sparrowmq/{name}")
    disk.open("abort", create=True)
    assert all_numbers(open_store(disk)) == set(range(COUNT)) - gone


def test_a_body_that_spells_a_records_magic_does_not_end_the_damage_before_it() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    ends = []
    for body in (b"first", MAGIC_V1.to_bytes(4, "big") * 20, b"last"):
        stored = store.append(msgspec.structs.replace(message(0), body=body), 1)
        ends.append(stored.log_offset + stored.size)
    store.close()
    disk = damaged(disk, log_path(0), ends[0] + 8, 0x41)  # its CRC
    for path in ("sparrowmq/queues.0", "sparrowmq/queues.1", "sparrowmq/mark"):
        disk.unlink(path)
    disk.open("abort", create=True)
    told = Told()
    store = open_store(disk.killed(), report=told)
    assert [record.body for record in read_all(store)] == [b"first", b"last"]
    assert [(damage.position, damage.length) for damage in told.damage] == [
        (ends[0], ends[1] - ends[0])
    ]


@pytest.mark.slow
def test_a_flipped_byte_outside_the_log_never_leads_to_wrong_answers(
    stopped: RecordingDisk,
) -> None:
    rng = Random(5)
    for path, data in stopped.files().items():
        if path.startswith("commitlog/") or path == "lock":
            continue
        used = len(data.rstrip(b"\0"))
        step = max(1, used // 25)
        for position in range(0, used, step):
            disk = damaged(stopped, path, position, rng.randrange(1, 256))
            assert all_numbers(open_store(disk)) == set(range(COUNT)), (path, position)


def test_every_byte_of_the_mark_may_flip(stopped: RecordingDisk) -> None:
    """A wrong one would declare part of the log damaged, or damage not to be."""
    data = stopped.files()["sparrowmq/mark"]
    written = [position for position, byte in enumerate(data) if byte or position % 4096 < 40]
    for position in written:
        told = Told()
        store = open_store(damaged(stopped, "sparrowmq/mark", position, 0x40), report=told)
        assert all_numbers(store) == set(range(COUNT))
        assert not told.damage


def test_a_flipped_tag_in_a_queue_unit_does_not_hide_its_message(stopped: RecordingDisk) -> None:
    path = "consumequeue/orders/0/00000000000000000000"
    disk = damaged(stopped, path, 12 + 7, 0x01)
    told = Told()
    store = open_store(disk, report=told)
    tags = {unit[2] for unit in store.units("orders", 0, 0, 3)}
    assert {number_of(record) for record in read_all(store, accepts_tag=tags)} == set(
        range(0, COUNT, QUEUES)
    )
    assert [damage.path for damage in told.damage] == ["consumequeue/orders/0"]


def test_a_log_file_may_be_cut_anywhere(
    stopped: RecordingDisk, spans: list[tuple[int, int, int]]
) -> None:
    files = sorted(path for path in stopped.files() if path.startswith("commitlog/"))
    for path in files:
        start = int(path.rpartition("/")[2])
        for length in range(0, SMALL.log_file_size, 1021):
            disk = stopped.killed()
            disk.poke(path, stopped.files()[path][:length])
            told = Told()
            store = open_store(disk, report=told)
            expected = {
                number
                for first, end, number in spans
                if end <= start + length or first >= start + SMALL.log_file_size
            }
            assert all_numbers(store) == expected
            assert told.damage or expected == set(range(COUNT))
            before = store.max_offset("orders", 0)
            offset = store.append(message(1000), 1).queue_offset
            assert offset == before == COUNT // QUEUES, "an offset was given twice"


@pytest.mark.parametrize("has_marks", [True, False])
@pytest.mark.parametrize("lost", [SMALL.log_file_size, 2 * SMALL.log_file_size])
def test_a_missing_log_file_affects_only_its_own_messages(
    stopped: RecordingDisk, spans: list[tuple[int, int, int]], has_marks: bool, lost: int
) -> None:
    """#2140"""
    size = SMALL.log_file_size
    expected = {number for first, _, number in spans if not lost <= first < lost + size}
    assert expected != set(range(COUNT))
    disk = stopped.killed()
    disk.unlink(f"commitlog/{lost:020d}")
    if not has_marks:
        disk.unlink("sparrowmq/queues.0")
        disk.unlink("sparrowmq/queues.1")
    told = Told()
    store = open_store(disk, report=told)
    assert all_numbers(store) == expected
    assert told.damage
    store.close()
    again = Told()
    assert all_numbers(open_store(disk, report=again)) == expected
    assert not again.damage


def test_a_store_without_its_log_keeps_its_queue_offsets(stopped: RecordingDisk) -> None:
    disk = stopped.killed()
    for path in list(disk.files()):
        if path.startswith("commitlog/"):
            disk.unlink(path)
    told = Told()
    store = open_store(disk, report=told)
    assert all_numbers(store) == set()
    assert store.append(message(7), 1).queue_offset == COUNT // QUEUES
    (damage,) = told.damage
    assert "every log file is missing; if their disk is not mounted" in str(damage)
    assert "without the messages before it" in str(damage)


def test_files_of_another_size_are_refused_with_their_size_named(stopped: RecordingDisk) -> None:
    from tests.store.stores import with_sizes

    with pytest.raises(StoreCorrupted, match="log files of 16384 bytes"):
        open_store(stopped.killed(), with_sizes(log_file_size=64 * 1024))
    with pytest.raises(StoreCorrupted, match="set store-log-file-size and store-queue-file-units"):
        open_store(stopped.killed(), with_sizes(log_file_size=64 * 1024))
    with pytest.raises(StoreCorrupted, match="queue files of 50 units"):
        open_store(stopped.killed(), with_sizes(queue_file_units=300))


def test_without_the_whole_record_crc_only_the_body_is_protected() -> None:
    """The twin of the tests above: this is what they would miss."""
    from tests.store.stores import with_sizes

    disk = RecordingDisk()
    config = with_sizes(record_crc=False)
    store = open_store(disk, config)
    stored = store.append(message(1), 1)
    store.close()
    record = disk.files()["commitlog/00000000000000000000"][: stored.size]
    at = record.index(b"tag1")
    disk = damaged(disk, "commitlog/00000000000000000000", at, 0x01)
    served = read_all(open_store(disk, config))
    assert b"tag1" not in served[0].properties
    with pytest.raises(RecordError):
        flipped = bytearray(record)
        flipped[record.index(b"message")] ^= 1
        check_record(flipped, 0, 0)
