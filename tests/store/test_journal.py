"""The journal of consumer offsets: no synced entry is lost, and a torn tail is tolerated."""

import errno
from random import Random

import pytest

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.journal import Journal
from sparrowmq.store.messages import Damage
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import seeds

PATH = "sparrowmq/offsets.journal"


def replayed(disk: RecordingDisk) -> list[bytes]:
    return Journal(disk, "offsets").replay(fail_on_damage)


def fail_on_damage(damage: Damage) -> None:
    raise AssertionError(str(damage))


def journal_on(disk: RecordingDisk) -> Journal:
    journal = Journal(disk, "offsets")
    journal.replay(fail_on_damage)
    return journal


def test_entries_come_back_in_order() -> None:
    disk = RecordingDisk()
    journal = journal_on(disk)
    for number in range(5):
        journal.append(b"entry %d" % number)
    assert replayed(disk) == [b"entry %d" % number for number in range(5)]


def test_a_journal_continues_where_it_ended() -> None:
    disk = RecordingDisk()
    journal_on(disk).append(b"one")
    journal_on(disk).append(b"two")
    assert replayed(disk) == [b"one", b"two"]


def test_after_a_rotation_the_entries_before_are_replayed_once_more() -> None:
    disk = RecordingDisk()
    journal = journal_on(disk)
    for entry in (b"a", b"b"):
        journal.append(entry)
    journal.rotate()
    assert journal.size == 0
    journal.append(b"c")
    assert replayed(disk) == [b"a", b"b", b"c"]
    journal.rotate(b"everything")
    journal.append(b"d")
    assert replayed(disk) == [b"c", b"everything", b"d"]


@pytest.mark.parametrize("seed", range(5))
def test_the_first_entry_of_a_new_file_is_durable_at_once(seed: int) -> None:
    disk = RecordingDisk()
    journal = journal_on(disk)
    journal.append(b"before")
    journal.sync()
    journal.rotate(b"everything")
    assert replayed(disk.crashed(Random(seed))) == [b"before", b"everything"]


def test_a_torn_tail_is_cut_and_the_journal_continues() -> None:
    disk = RecordingDisk()
    journal_on(disk).append(b"whole")
    journal = journal_on(disk)
    journal.append(b"torn entry")
    disk.poke(PATH, disk.files()[PATH][:-3])
    assert replayed(disk) == [b"whole"]
    journal_on(disk).append(b"next")
    assert replayed(disk) == [b"whole", b"next"]


def test_damage_in_the_middle_costs_one_entry_and_is_reported() -> None:
    disk = RecordingDisk()
    journal = journal_on(disk)
    for number in range(3):
        journal.append(b"entry %d" % number)
    data = disk.files()[PATH]
    at = data.index(b"entry 1")
    for position in range(at - 12, at + 7):
        disk.poke(PATH, data[:position] + b"?" + data[position + 1 :])
        damage: list[Damage] = []
        entries = Journal(disk, "offsets").replay(damage.append)
        assert entries == [b"entry 0", b"entry 2"]
        assert [(each.path, each.position, each.length) for each in damage] == [(PATH, 19, 19)]


def test_an_entry_may_contain_the_magic() -> None:
    disk = RecordingDisk()
    entry = b"SPJ1" * 10
    journal_on(disk).append(entry)
    journal_on(disk).append(entry)
    assert replayed(disk) == [entry, entry]


def test_a_full_disk_loses_only_the_refused_entries() -> None:
    disk = RecordingDisk()
    journal = journal_on(disk)
    journal.append(b"one")
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        journal.append(b"refused")
    disk.heal()
    journal.append(b"two")
    assert replayed(disk) == [b"one", b"two"]


def test_entries_have_a_size() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        journal_on(RecordingDisk()).append(b"")


@pytest.mark.parametrize("seed", seeds(60))
def test_synced_entries_survive_a_power_cut(seed: int) -> None:
    rng = Random(seed)
    disk = RecordingDisk()
    journal = journal_on(disk)
    written: list[bytes] = []
    synced: list[bytes] = []
    kept_from = rotated_at = 0
    disk.cut_at(rng.randint(1, 80))
    try:
        for number in range(60):
            entry = b"%03d" % number * rng.randint(1, 300)
            written.append(entry)
            journal.append(entry)
            if rng.random() < 0.4:
                journal.sync()
                synced = list(written)
            if rng.random() < 0.1:
                journal.sync()
                synced = list(written)
                # The table holds what was there; one rotation more is kept.
                kept_from, rotated_at = rotated_at, len(written)
                journal.rotate()
    except PowerCut:
        pass
    for _ in range(5):
        crashed = disk.crashed(rng)
        entries = Journal(crashed, "offsets").replay(lambda _: None)
        assert in_order(entries, written), "only what was written, in order"
        assert set(synced[kept_from:]) <= set(entries)
        again = Journal(crashed, "offsets")
        again.replay(lambda _: None)
        again.append(b"after")
        assert Journal(crashed, "offsets").replay(lambda _: None) == [*entries, b"after"]


def in_order(entries: list[bytes], written: list[bytes]) -> bool:
    positions = [written.index(entry) for entry in entries]
    return positions == sorted(positions)
