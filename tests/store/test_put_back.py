"""Bytes that damage took from a log are put back from another copy, or nothing is changed."""

from collections.abc import Callable
from random import Random

import pytest

from sparrowmq.clock import utc
from sparrowmq.protocol.record import RecordError
from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE
from sparrowmq.store.errors import StoreError
from sparrowmq.store.layout import QUARANTINE_DIR, log_path
from sparrowmq.store.recovery.put_back import Replacement, put_back
from sparrowmq.store.recovery.quarantine import DamagedPlace
from sparrowmq.store.store import Store
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import in_part
from tests.store.stores import SMALL, body_of, message

MESSAGES = 20
SIZE = 500
"""A damaged place covers several sectors."""
LOST = range(8, 12)


def bodies(disk: RecordingDisk) -> list[bytes]:
    """What readers of the queue get, by key as well."""
    store = Store.open(SMALL, disk, 0, is_copy=True)
    found = []
    for log_offset, size, _ in store.units("orders", 0, 0, 1000):
        record = store.read_record(log_offset) if size != BLANK_UNIT_SIZE else None
        found += [] if record is None else [record.body]
    for number in LOST:
        by_key = store.find_by_key("orders", f"k{number}", 0, 2**62, 10)
        assert bool(by_key.log_offsets) == (body_of(number, SIZE) in found)
    store.close()
    return found


def damaged() -> tuple[RecordingDisk, DamagedPlace, bytes]:
    """A store with a filled hole, the place, and the bytes of the copy from its start on."""
    disk = RecordingDisk()
    store = Store.open(SMALL, disk, 0, is_copy=True)
    starts = [store.append(message(number, size=SIZE), 0).log_offset for number in range(MESSAGES)]
    store.close()
    whole = disk.files()[log_path(0)]
    start, end = starts[LOST.start], starts[LOST.stop]
    disk.poke(log_path(0), whole[:start] + b"\xff" * (end - start) + whole[end:])
    disk.unlink("consumequeue/orders/0/00000000000000000000")  # makes recovery read the whole log
    store = Store.open(SMALL, disk, 0, is_copy=True)
    assert store.recovered.filled == [DamagedPlace(start, end)]
    store.close()
    return disk, DamagedPlace(start, end), whole[start:]


def fetched(disk: RecordingDisk, place: DamagedPlace, data: bytes, piece: int = 100) -> None:
    """Keep the bytes for the next start, in pieces."""
    replacement = Replacement(disk, SMALL.log_file_size, place)
    try:
        for at in range(0, place.end - place.start, piece):
            replacement.add(data[at : min(at + piece, place.end - place.start)])
        replacement.finish()
    finally:
        replacement.close()


def start(disk: RecordingDisk) -> list[DamagedPlace]:
    return put_back(disk, SMALL, 0, lambda finding: None, zone=utc)


ALL = [body_of(number, SIZE) for number in range(MESSAGES)]
WITHOUT = [body_of(number, SIZE) for number in range(MESSAGES) if number not in LOST]


@pytest.mark.parametrize("piece", [1, 100, 10_000])
def test_what_was_damaged_is_there_again(piece: int) -> None:
    disk, place, data = damaged()
    assert bodies(disk) == WITHOUT
    fetched(disk, place, data, piece)
    assert start(disk) == [place]
    assert bodies(disk) == ALL
    assert start(disk) == []
    assert len(disk.listdir(QUARANTINE_DIR)) == 1, "only the damaged bytes are kept"


@pytest.mark.parametrize(
    "seed", in_part([None, *range(4)], few=2), ids=lambda at: f"power cut {at}"
)
def test_a_crash_at_any_call_leaves_the_rest_to_the_next_start(seed: int | None) -> None:
    """A kill without a seed, a power cut with one."""
    ready, place, data = damaged()
    fetched(ready, place, data)
    calls = 0
    while True:
        calls += 1
        disk = ready.killed()
        disk.cut_at(calls)
        try:
            start(disk)
            break
        except PowerCut:
            after = disk.killed() if seed is None else disk.crashed(Random(1000 * seed + calls))
        start(after)
        assert bodies(after) == ALL, calls
    assert calls > 20


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_bytes_put_back_after_a_crash_at_any_call_while_they_arrive_are_whole(power: bool) -> None:
    """Or none are, and they are asked for again."""
    ready, place, data = damaged()
    calls = 0
    while True:
        calls += 1
        disk = ready.killed()
        disk.cut_at(calls)
        try:
            fetched(disk, place, data, 700)
            break
        except PowerCut:
            after = disk.crashed(Random(calls)) if power else disk.killed()
        if not start(after):
            assert bodies(after) == WITHOUT, calls
            fetched(after, place, data, 700)
            assert start(after) == [place]
        assert bodies(after) == ALL, calls
    assert calls > 8


def test_a_crash_while_the_bytes_arrive_changes_nothing() -> None:
    disk, place, data = damaged()
    replacement = Replacement(disk, SMALL.log_file_size, place)
    replacement.add(data[:100])
    after = disk.killed()
    assert start(after) == []
    assert bodies(after) == WITHOUT
    fetched(after, place, data)
    start(after)
    assert bodies(after) == ALL


def corrupt(data: bytes) -> bytes:
    return data[:150] + b"!" + data[151:]


def shifted(data: bytes) -> bytes:
    return data[1:] + b"\0"


def blank(data: bytes) -> bytes:
    return bytes(len(data))


@pytest.mark.parametrize("wrong", [corrupt, shifted, blank])
def test_bytes_that_are_not_records_of_this_place_are_rejected(
    wrong: Callable[[bytes], bytes],
) -> None:
    disk, place, data = damaged()
    with pytest.raises(RecordError):
        fetched(disk, place, wrong(data))
    assert start(disk) == []
    assert bodies(disk) == WITHOUT


def test_what_is_damaged_in_both_copies_is_not_kept() -> None:
    disk, place, _ = damaged()
    own = disk.files()[log_path(0)][place.start :]
    with pytest.raises(RecordError, match="damaged there, too"):
        fetched(disk, place, own)


def test_bytes_that_wait_are_dropped_where_the_log_has_other_records_now() -> None:
    disk, place, data = damaged()
    fetched(disk, place, data)
    whole = disk.files()[log_path(0)]
    other = data[: place.end - place.start].replace(b"message", b"MESSAGE")
    disk.poke(log_path(0), whole[: place.start] + other + whole[place.end :])
    assert start(disk) == []
    assert disk.files()[log_path(0)][place.start : place.end] == other


def test_nothing_is_fetched_if_queues_could_not_be_rebuilt() -> None:
    disk, place, _ = damaged()
    disk.poke("index/notes.txt", b"an operator's")
    with pytest.raises(StoreError, match=r"notes\.txt"):
        Replacement(disk, SMALL.log_file_size, place)
