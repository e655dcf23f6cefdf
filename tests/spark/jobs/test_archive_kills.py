"""An archive that is killed at any call that changes the disk, in commits, snapshots, compaction
and when old files are dropped: readers always see a commit, and the next run finishes the work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from sparrowmq.spark.jobs import archive_log
from sparrowmq.spark.jobs.archive_files import LocalFiles
from sparrowmq.spark.jobs.archive_folder import ArchiveFolder, opened_folder
from sparrowmq.spark.jobs.archive_log import Archive, ArchiveLog, commit_of
from sparrowmq.spark.wire.cluster import Queue, QueuePosition
from tests.seeds import CRASH_STEPS
from tests.spark.jobs.dying import Died

DAY = "topic=orders/date=2026-11-15"
QUEUE = Queue("orders", "broker-a", 0)
ROWS_A_COMMIT = 2
ENDS = (2, 4, 6, 8)


class Killer:
    """Dies before the n-th call that changes the disk, or in the middle of writing a file."""

    def __init__(self, at: int, *, halves: bool = False) -> None:
        self.left = at
        self.halves = halves

    def strike(self, half_written: Path | None = None) -> None:
        self.left -= 1
        if self.left == 0:
            if self.halves and half_written is not None:
                data = half_written.read_bytes()
                half_written.write_bytes(data[: len(data) // 2])
            raise Died


@contextmanager
def killed_by(killer: Killer) -> Iterator[None]:
    """All calls of a run that change the disk pass the killer."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            *((Path, name) for name in ("rename", "replace", "unlink", "mkdir", "rmdir")),
            (os, "fsync"),
            (shutil, "rmtree"),
        ):
            patch.setattr(owner, name, _passing(killer, owner, name))
        yield


def _passing(killer: Killer, owner: object, name: str) -> object:
    real = getattr(owner, name)

    def call(*given: object, **named: object) -> object:
        half = None
        if name == "fsync":
            half = Path(os.readlink(f"/proc/self/fd/{given[0]}"))  # noqa: PTH115 - a descriptor
            half = half if half.is_file() else None
        killer.strike(half)
        return real(*given, **named)

    return call


def write_rows(folder: ArchiveFolder, where: Path, rows: list[int], place: str = DAY) -> None:
    """As Spark does: a staged file for each row, none of them synced."""
    staging = where / folder.stage() / place
    os.makedirs(staging, exist_ok=True)  # noqa: PTH103 - not a call of the archive's own
    for number, row in enumerate(rows):
        (staging / f"part-{number}.parquet").write_text(str(row))


def archive(folder: ArchiveFolder, where: Path) -> None:
    """Commit after commit up to the last end, two rows each, two files each."""
    for end in ENDS:
        begin = folder.archive.positions.get(QUEUE, QueuePosition(0)).offset
        if begin < end:
            write_rows(folder, where, list(range(begin, end)))
            ends = {QUEUE: QueuePosition(end)}
            added = folder.settle()
            commit = commit_of(folder.archive, 1, add=added, positions=ends, rows=end - begin)
            folder.commit(commit)


def compact(folder: ArchiveFolder, where: Path) -> None:
    """All files of the day into one."""
    names = sorted(folder.archive.files)
    if len(names) > 1:
        staging = where / folder.stage()
        os.makedirs(staging, exist_ok=True)  # noqa: PTH103
        (staging / "part-0.parquet").write_text(" ".join(map(str, rows_of(where, folder.archive))))
        added = folder.settle(DAY)
        folder.commit(commit_of(folder.archive, 2, add=added, remove=names))


def drop(folder: ArchiveFolder) -> None:
    names = list(folder.archive.removed)
    if names:
        for name in names:
            folder.files.delete(name)
        folder.commit(commit_of(folder.archive, 3, drop=names))


def run(where: Path) -> None:
    with opened_folder(LocalFiles(where)) as folder:
        archive(folder, where)
        compact(folder, where)
        drop(folder)


def rows_of(where: Path, found: Archive) -> list[int]:
    return sorted(int(row) for name in found.files for row in (where / name).read_text().split())


def check_reader(where: Path) -> None:
    """The newest commit, whole: as many rows as its offsets say, each once."""
    found = ArchiveLog(LocalFiles(where)).read()
    end = found.positions.get(QUEUE, QueuePosition(0)).offset
    assert rows_of(where, found) == list(range(end))
    assert found.rows == end


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("halves", [False, True], ids=["between calls", "in half-written files"])
def test_a_kill_at_any_call_is_survived_by_readers_and_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halves: bool, step: int
) -> None:
    monkeypatch.setattr(archive_log, "SNAPSHOT_EVERY", 2)
    for call in count(1, step):
        where = tmp_path / f"{call}"
        try:
            with killed_by(Killer(call, halves=halves)):
                run(where)
            break
        except Died:
            pass
        check_reader(where)
        run(where)
        check_reader(where)
        found = ArchiveLog(LocalFiles(where)).read()
        assert rows_of(where, found) == list(range(ENDS[-1]))
        assert LocalFiles(where).data_files().keys() == found.files.keys()
        assert len(found.files) == 1
        assert LocalFiles(where).names("_staging") == []
    assert call > 50


def test_a_second_kill_while_the_first_is_cleaned_up_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "SNAPSHOT_EVERY", 2)
    for first in range(3, 60, 7):
        for second in range(1, 30, 6):
            where = tmp_path / f"{first}-{second}"
            for at in (first, second):
                with pytest.raises(Died), killed_by(Killer(at)):
                    run(where)
                check_reader(where)
            run(where)
            check_reader(where)
            assert LocalFiles(where).data_files().keys() == (
                ArchiveLog(LocalFiles(where)).read().files.keys()
            )
