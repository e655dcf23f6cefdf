"""Replacing a file: after any failure the old content or the new, and nothing half-written."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sparrowmq.disk.atomic_file import (
    AtomicFile,
    disk_and_path,
    make_dir,
    put_in_place,
    replace_path,
)
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk

PATH = "config/topics.json"
MAKERS: dict[str, Callable[[Path], Disk]] = {
    "real": RealDisk,
    "recording": lambda root: RecordingDisk(),
}


class FailingFile:
    """An open file of a FailingDisk."""

    def __init__(self, disk: "FailingDisk", file: Any) -> None:
        self._disk = disk
        self._file = file

    def write(self, offset: int, data: bytes) -> None:
        if self._disk.is_failing("write"):
            self._file.write(offset, data[: len(data) // 2])
            self._disk.step("write")
        self._file.write(offset, data)

    def sync(self) -> None:
        self._disk.step("sync")
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FailingDisk:
    """Any disk, on which the n-th call of one kind fails."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._kind = ""
        self._calls_left = 0
        self._error: Exception = OSError()

    def fail(self, kind: str, number: int, error: Exception) -> None:
        self._kind, self._calls_left, self._error = kind, number, error

    def is_failing(self, kind: str) -> bool:
        return kind == self._kind and self._calls_left == 1

    def step(self, kind: str) -> None:
        if kind == self._kind:
            self._calls_left -= 1
            if self._calls_left == 0:
                raise self._error

    def open(self, path: str, *, create: bool = False, write: bool = True) -> Any:
        self.step("create" if create else "open")
        return FailingFile(self, self._disk.open(path, create=create, write=write))

    def replace(self, source: str, target: str) -> None:
        self.step("replace")
        self._disk.replace(source, target)

    def sync_dir(self, path: str) -> None:
        self.step("sync_dir")
        self._disk.sync_dir(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


@pytest.fixture(params=list(MAKERS))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> FailingDisk:
    return FailingDisk(MAKERS[request.param](tmp_path))


@pytest.mark.parametrize("keeps_backup", [False, True])
def test_content_of_any_length_is_replaced(disk: FailingDisk, keeps_backup: bool) -> None:
    file = AtomicFile(disk, PATH, keeps_backup=keeps_backup)
    assert file.read() is None
    file.replace(b"first and longer")
    file.replace(b"second")
    assert file.read() == b"second"
    names = ["topics.json", "topics.json.bak"] if keeps_backup else ["topics.json"]
    assert disk.listdir("config") == names
    if keeps_backup:
        assert AtomicFile(disk, file.backup_path).read() == b"first and longer"


ERRORS = [OSError(errno.EIO, os.strerror(errno.EIO)), DiskFull(PATH, 3)]


@pytest.mark.parametrize("error", ERRORS, ids=["EIO", "full"])
@pytest.mark.parametrize(
    ("kind", "number", "keeps_backup", "left"),
    [
        ("create", 1, False, b"old"),
        ("write", 1, False, b"old"),
        ("sync", 1, False, b"old"),
        ("replace", 1, False, b"old"),
        ("replace", 1, True, b"old"),
        ("replace", 2, True, b"old"),
        ("sync_dir", 1, False, b"new"),
        ("sync_dir", 1, True, b"new"),
    ],
)
def test_a_failed_step_is_raised_and_leaves_no_draft(
    disk: FailingDisk, kind: str, number: int, keeps_backup: bool, left: bytes, error: Exception
) -> None:
    file = AtomicFile(disk, PATH, keeps_backup=keeps_backup)
    file.replace(b"older")
    file.replace(b"old")
    disk.fail(kind, number, error)
    with pytest.raises(type(error)) as caught:
        file.replace(b"new")
    assert caught.value is error
    assert file.read() == left
    assert set(disk.listdir("config")) <= {"topics.json", "topics.json.bak"}
    file.replace(b"newer")
    assert file.read() == b"newer"


@pytest.mark.parametrize("keeps_backup", [False, True])
@pytest.mark.parametrize("cut_at", range(1, 9))
def test_a_power_cut_at_any_call_leaves_the_old_or_the_new(cut_at: int, keeps_backup: bool) -> None:
    disk = RecordingDisk()
    file = AtomicFile(disk, PATH, keeps_backup=keeps_backup)
    file.replace(b"old")
    disk.cut_at(cut_at)
    allowed = {b"old", b"new"}
    try:
        file.replace(b"new")
        allowed = {b"new"}
    except PowerCut:
        pass
    for seed in range(20):
        after = disk.crashed(Random(seed))
        found = AtomicFile(after, PATH).read()
        if found is None and keeps_backup:
            found = AtomicFile(after, file.backup_path).read()
        assert found in allowed


def test_a_directory_that_is_made_for_the_file_survives_a_power_cut() -> None:
    disk = RecordingDisk()
    AtomicFile(disk, "a/b/c").replace(b"new")
    for seed in range(20):
        assert disk.crashed(Random(seed)).files() == {"a/b/c": b"new"}


def test_a_directory_that_exists_is_not_synced_again() -> None:
    disk = RecordingDisk()
    make_dir(disk, "a/b")
    synced = disk.calls["sync_dir"]
    make_dir(disk, "a/b")
    assert disk.calls["sync_dir"] == synced


def test_a_path_of_the_machine_is_replaced_with_its_directories(tmp_path: Path) -> None:
    path = tmp_path / "made" / "offsets.json"
    replace_path(path, b"1", keeps_backup=True)
    replace_path(path, b"2", keeps_backup=True)
    assert path.read_bytes() == b"2"
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}.bak"]


def test_a_full_disk_is_an_ordinary_error_for_programs_that_know_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError) as caught:
        replace_path(tmp_path / "offsets.json", b"1")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk, name = disk_and_path(Path("a/b"))
    assert disk.real_path(name) == f"{tmp_path}/a/b"


def test_a_finished_draft_is_synced_before_it_gets_its_name_and_its_directory_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, path = tmp_path / "letters.part", tmp_path / "letters"
    draft.write_text("one\n")
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append((os.fstat(fd).st_ino, path.exists())))
    inodes = draft.stat().st_ino, tmp_path.stat().st_ino
    put_in_place(draft, path)
    assert synced == [(inodes[0], False), (inodes[1], True)]
    assert path.read_text() == "one\n"
