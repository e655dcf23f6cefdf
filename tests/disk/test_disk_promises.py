"""The promises of a Disk, kept by the real one and by the recording one alike."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import StoreLocked
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.testing.recording_disk import RecordingDisk

MAKERS: dict[str, Callable[[Path], Disk]] = {
    "real": RealDisk,
    "real without a map": lambda root: RealDisk(root, mapped=False),
    "recording": lambda root: RecordingDisk(),
}


@pytest.fixture(params=list(MAKERS))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MAKERS[request.param](tmp_path)


def test_what_was_written_is_read(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(3, b"hello")
    assert file.read(0, 100) == b"\x00\x00\x00hello"
    assert file.read(4, 3) == b"ell"
    assert file.read_cached(3, 5) == b"hello"
    assert file.size() == disk.size("a") == 8


def test_reading_past_the_end_returns_nothing(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"abc")
    assert file.read(3, 10) == b""
    assert file.read(99, 10) == b""
    assert file.read_cached(2, 10) == b"c"


def test_reserved_space_is_zero_and_existing_bytes_stay(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"abc")
    file.reserve(0, 8192)
    assert file.size() == 8192
    assert file.read(0, 5) == b"abc\x00\x00"
    file.write(4090, b"across pages")
    assert file.read(4090, 12) == b"across pages"
    file.reserve(8192, 4096)
    file.write(8190, b"over")
    assert file.read(8190, 4) == b"over"


def test_warmed_space_is_zero_and_adjacent_bytes_stay(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.reserve(0, 16384)
    file.write(0, b"before")
    file.write(10_000, b"behind")
    file.warm(6, 9994)
    assert file.read(0, 16384) == b"before" + bytes(9994) + b"behind" + bytes(6378)
    file.write(4096, b"into it")
    assert file.read(4094, 11) == file.read_cached(4094, 11) == b"\0\0into it\0\0"


@pytest.mark.parametrize("reserved", [0, 20, 64])
def test_words_are_written_as_single_writes_would(disk: Disk, reserved: int) -> None:
    one, other = disk.open("a", create=True), disk.open("b", create=True)
    for file in (one, other):
        file.truncate(64)
        if reserved:
            file.reserve(0, reserved)
    places, values = np.array([2, 0, 2, 13], "u4"), np.array([7, 0x01020304, 0xFFFFFFFF, 5], "u4")
    one.write_words(8, places, values)
    one.write_words(8, places[:0], values[:0])
    for place, value in ((2, 7), (0, 0x01020304), (2, 0xFFFFFFFF), (13, 5)):
        other.write(8 + 4 * place, value.to_bytes(4, "big"))
    assert one.read(0, 64) == other.read(0, 64)


def test_truncating_cuts_and_extends_with_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.reserve(0, 4096)
    file.write(0, b"abcdef")
    file.truncate(3)
    file.truncate(6)
    assert file.read(0, 10) == b"abc\x00\x00\x00"
    file.write(5, b"!")
    assert file.read(0, 10) == b"abc\x00\x00!"


def test_a_missing_file_is_not_found(disk: Disk) -> None:
    for attempt in (
        lambda: disk.open("missing"),
        lambda: disk.size("missing"),
        lambda: disk.open("no-directory/file", create=True),
        lambda: disk.sync("missing"),
        lambda: disk.sync_dir("missing"),
        lambda: disk.replace("missing", "other"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    disk.unlink("missing")
    disk.rmdir("missing")
    assert disk.listdir("missing") == []


def test_an_error_is_not_its_own_cause(disk: Disk) -> None:
    """It would live, with all that its callers had in hand, until the garbage collector comes."""
    for act in (lambda: disk.open("missing"), lambda: disk.replace("missing", "a")):
        with pytest.raises(FileNotFoundError) as caught:
            act()
        assert caught.value.__cause__ is None


def test_a_file_opened_for_reading_refuses_writes(disk: Disk) -> None:
    disk.open("a", create=True).write(0, b"x")
    file = disk.open("a", write=False)
    with pytest.raises(OSError) as raised:
        file.write(0, b"y")
    assert raised.value.errno == errno.EBADF
    assert file.read(0, 1) == b"x"


def test_directories_are_made_listed_and_removed_when_empty(disk: Disk) -> None:
    disk.mkdir("one/two")
    disk.mkdir("one/two")
    disk.open("one/b", create=True).close()
    disk.open("one/a", create=True).close()
    assert disk.listdir("one") == ["a", "b", "two"]
    assert disk.exists("one/two")
    disk.rmdir("one")
    assert disk.exists("one")
    disk.rmdir("one/two")
    assert disk.listdir("one") == ["a", "b"]


def test_replacing_overwrites_an_existing_file(disk: Disk) -> None:
    disk.open("old", create=True).write(0, b"old")
    disk.open("new", create=True).write(0, b"new!")
    disk.replace("new", "old")
    assert disk.open("old").read(0, 10) == b"new!"
    assert not disk.exists("new")


def test_a_directory_can_be_renamed_with_its_contents(disk: Disk) -> None:
    disk.mkdir("from/inner")
    disk.open("from/inner/file", create=True).write(0, b"x")
    disk.replace("from", "to")
    assert disk.open("to/inner/file").read(0, 1) == b"x"
    assert not disk.exists("from")


@pytest.mark.parametrize(
    ("source", "target", "refused_with"),
    [
        ("full", "also full", errno.ENOTEMPTY),
        ("full", "file", errno.ENOTDIR),
        ("file", "full", errno.EISDIR),
    ],
)
def test_what_is_in_a_directory_is_never_renamed_over(
    disk: Disk, source: str, target: str, refused_with: int
) -> None:
    for name in ("full", "also full"):
        disk.mkdir(name)
        disk.open(f"{name}/inside", create=True).close()
    disk.open("file", create=True).close()
    with pytest.raises(OSError) as caught:
        disk.replace(source, target)
    assert caught.value.errno == refused_with
    assert disk.listdir("") == ["also full", "file", "full"]
    assert disk.listdir("also full") == disk.listdir("full") == ["inside"]


def test_an_open_file_survives_its_name(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"x")
    disk.unlink("a")
    assert file.read(0, 1) == b"x"
    assert not disk.exists("a")


def test_a_closed_file_is_closed_and_may_be_closed_again(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError) as raised:
        file.read(0, 1)
    assert raised.value.errno == errno.EBADF


def test_syncing_by_file_by_path_and_by_directory_is_allowed(disk: Disk) -> None:
    disk.mkdir("d")
    file = disk.open("d/a", create=True)
    file.write(0, b"x")
    file.sync()
    disk.sync("d/a")
    disk.sync_dir("d")
    disk.sync_dir("")


def test_usage_has_room(disk: Disk) -> None:
    usage = disk.usage()
    assert 0 < usage.free_bytes <= usage.total_bytes


def test_the_recording_disk_lets_one_hold_the_lock() -> None:
    # The real lock keeps other processes out, not its own: tests of two processes check that.
    disk = RecordingDisk()
    lock = disk.lock("lock")
    with pytest.raises(StoreLocked):
        disk.lock("lock")
    lock.release()
    disk.lock("lock").release()
