"""A kill does not lose how far a broker showed its log, and a power cut does not exaggerate it."""

from random import Random

import pytest

from sparrowmq.broker.replication.shown_end import PATH, UNLIMITED, ShownEnd
from sparrowmq.testing.recording_disk import RecordingDisk


def loaded(disk: RecordingDisk) -> int:
    shown = ShownEnd(disk)
    shown.load()
    return shown.log_offset


def begun(disk: RecordingDisk, log_offset: int) -> ShownEnd:
    shown = ShownEnd(disk)
    shown.load()
    shown.set(log_offset)
    return shown


def test_without_a_file_everything_may_be_shown_and_none_is_made() -> None:
    disk = RecordingDisk()
    assert loaded(disk) == UNLIMITED
    begun(disk, UNLIMITED)
    assert disk.files() == {}


def test_a_kill_loses_nothing() -> None:
    disk = RecordingDisk()
    shown = begun(disk, 100)
    for log_offset in (200, 300, 12_345):
        shown.advance(log_offset)
        assert loaded(disk.killed()) == log_offset
    shown.set(UNLIMITED)
    assert loaded(disk.killed()) == UNLIMITED


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_no_more_than_was_shown(seed: int) -> None:
    disk = RecordingDisk()
    shown = begun(disk, 100)
    shown.advance(250)
    shown.advance(300)
    assert loaded(disk.crashed(Random(seed))) in (100, 250, 300)
    shown.set(200)
    assert loaded(disk.crashed(Random(seed))) == 200


def test_a_record_that_was_torn_leaves_the_one_before_it() -> None:
    disk = RecordingDisk()
    shown = begun(disk, 100)
    shown.advance(200)
    shown.advance(300)
    data = bytearray(disk.files()[PATH])
    data[data.index((300).to_bytes(8, "little"))] ^= 0xFF
    disk.poke(PATH, bytes(data))
    assert loaded(disk) == 200


@pytest.mark.parametrize("data", [bytes(32), b"damaged" * 9])
def test_a_damaged_file_shows_nothing(data: bytes) -> None:
    disk = RecordingDisk()
    begun(disk, 100)
    disk.poke(PATH, data)
    assert loaded(disk) == 0


def test_on_a_full_disk_nothing_is_kept_until_there_is_space() -> None:
    disk = RecordingDisk(capacity_bytes=0)
    shown = begun(disk, 100)
    shown.advance(200)
    assert shown.log_offset == 200
    assert loaded(disk) == UNLIMITED
    disk.capacity_bytes = None
    shown.set(300)
    assert loaded(disk) == 300
