"""What the recording disk loses in a power cut, and the errors that can be planted in it."""

import errno
from random import Random

import pytest

from sparrowmq.disk.errors import DiskFull
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk

SEEDS = range(60)


def written(disk: RecordingDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write(0, data)
    file.sync()
    disk.sync_dir("")


def outcomes(disk: RecordingDisk) -> list[dict[str, bytes]]:
    return [disk.crashed(Random(seed)).files() for seed in SEEDS]


def test_synced_bytes_under_a_synced_name_always_survive() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"kept" * 1000)
    assert all(files == {"a": b"kept" * 1000} for files in outcomes(disk))


def test_any_subset_of_unsynced_sectors_survives() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"o" * 4 * 512)
    disk.open("a").write(0, b"n" * 4 * 512)
    seen = {
        bytes(files["a"][sector * 512] for sector in range(4)).decode() for files in outcomes(disk)
    }
    assert len(seen) > 8
    assert all(set(files["a"]) <= set(b"on") for files in outcomes(disk))
    assert any(old_before_new(text) for text in seen), "later writes may arrive first"


def old_before_new(text: str) -> bool:
    return text[0] == "o" and text[-1] == "n"


def test_a_sector_is_never_torn() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"o" * 2048)
    disk.open("a").write(100, b"n" * 1500)
    for files in outcomes(disk):
        for at in range(0, 2048, 512):
            old, new = b"o" * 512, disk.files()["a"][at : at + 512]
            assert files["a"][at : at + 512] in (old, new)


def test_an_unsynced_length_may_be_old_or_new_and_missing_bytes_are_zero() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"x" * 100)
    disk.open("a").write(100, b"y" * 2000)
    lengths = {len(files["a"]) for files in outcomes(disk)}
    assert {100, 2100} <= lengths
    assert all(100 <= length <= 2100 for length in lengths)
    for files in outcomes(disk):
        assert files["a"][:100] == b"x" * 100
        assert set(files["a"][512:]) <= {0, ord("y")}


def test_cutting_a_file_is_not_durable_until_synced() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"x" * 5000)
    disk.open("a").truncate(10)
    assert b"x" * 5000 in [files["a"] for files in outcomes(disk)]
    assert b"x" * 10 in [files["a"] for files in outcomes(disk)]
    assert all(set(files["a"]) == {ord("x")} for files in outcomes(disk))
    disk.sync("a")
    assert all(files["a"] == b"x" * 10 for files in outcomes(disk))


def test_a_synced_file_in_an_unsynced_directory_may_be_gone() -> None:
    disk = RecordingDisk()
    file = disk.open("a", create=True)
    file.write(0, b"x")
    file.sync()
    assert {} in outcomes(disk)
    assert {"a": b"x"} in outcomes(disk)


def test_a_directory_that_was_not_synced_takes_its_files_along() -> None:
    disk = RecordingDisk()
    disk.mkdir("d")
    file = disk.open("d/a", create=True)
    file.write(0, b"x")
    file.sync()
    disk.sync_dir("d")
    assert {} in outcomes(disk)
    disk.sync_dir("")
    assert all(files == {"d/a": b"x"} for files in outcomes(disk))


def test_renames_and_removals_are_undone_until_the_directory_is_synced() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"old")
    written(disk, "b", b"other")
    written(disk, "a.new", b"new")
    disk.replace("a.new", "a")
    disk.unlink("b")
    seen = outcomes(disk)
    assert {"a": b"old", "a.new": b"new", "b": b"other"} in seen
    assert {"a": b"new", "b": b"other"} in seen
    assert {"a": b"new"} in seen
    assert {"a": b"old", "a.new": b"new"} not in seen, "changes of one directory keep their order"
    disk.sync_dir("")
    assert all(files == {"a": b"new"} for files in outcomes(disk))


def test_the_same_seed_gives_the_same_crash() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"o" * 9000)
    disk.open("a").write(0, b"n" * 9000)
    assert outcomes(disk) == outcomes(disk)
    assert disk.files()["a"] == b"n" * 9000, "looking at a crash changes nothing"


def test_after_a_kill_everything_written_is_there_but_still_not_durable() -> None:
    disk = RecordingDisk()
    disk.open("a", create=True).write(0, b"x" * 600)
    after = disk.killed()
    assert after.files() == {"a": b"x" * 600}
    assert {} in outcomes(after)
    after.open("a").write(0, b"y")
    assert disk.files() == {"a": b"x" * 600}


def test_planted_errors_hit_the_chosen_calls() -> None:
    disk = RecordingDisk()
    file = disk.open("log/x", create=True) if disk.exists("log") else disk.open("x", create=True)
    disk.fail("sync", errno.EIO, first=2, times=1)
    file.sync()
    with pytest.raises(OSError) as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    file.sync()
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        file.write(0, b"x")
    disk.heal()
    file.write(0, b"x")


def test_a_read_only_disk_serves_reads() -> None:
    disk = RecordingDisk()
    written(disk, "a", b"x")
    disk.is_read_only = True
    file = disk.open("a")
    assert file.read(0, 1) == b"x"
    with pytest.raises(OSError) as raised:
        file.write(0, b"y")
    assert raised.value.errno == errno.EROFS


def test_a_full_disk_refuses_new_space_but_not_reserved_space() -> None:
    disk = RecordingDisk(capacity_bytes=4096)
    file = disk.open("a", create=True)
    file.reserve(0, 2048)
    disk.open("b", create=True).write(0, b"x" * 2048)
    file.write(0, b"y" * 2048)
    with pytest.raises(DiskFull):
        file.write(2048, b"z")
    assert disk.usage().free_bytes == 0
    disk.unlink("b")
    file.write(2048, b"z")


def test_a_power_cut_ends_every_later_call() -> None:
    disk = RecordingDisk()
    file = disk.open("a", create=True)
    disk.cut_at(2)
    file.write(0, b"x")
    with pytest.raises(PowerCut):
        file.write(1, b"y")
    with pytest.raises(PowerCut):
        file.read(0, 1)
    assert disk.crashed(Random(0)).files() in ({}, {"a": b"x"}, {"a": b""}, {"a": b"\x00"})
