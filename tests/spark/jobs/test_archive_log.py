"""The log of an archive: commits without gaps, each whole, and nothing touched where one is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparrowmq.spark.jobs.archive_files import LocalFiles
from sparrowmq.spark.jobs.archive_log import Archive, ArchiveLog, commit_of, encode_record
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.wire.cluster import Queue, QueuePosition

QUEUE = Queue("orders", "broker-a", 0)


def log_of(folder: Path, commits: int, *, first: int = 1) -> Archive:
    """An archive whose commits each add a file and a row."""
    log = ArchiveLog(LocalFiles(folder))
    archive = log.read()
    for number in range(first, first + commits):
        log.identify("1a2b3c4d", archive)
        commit = commit_of(
            archive,
            number,
            add={f"f{number}": 1},
            rows=1,
            positions={QUEUE: QueuePosition(10 * number, 7)},
        )
        archive = log.append(archive, commit)
    log.identify("1a2b3c4d", archive)
    return archive


def commit_file(folder: Path, version: int) -> Path:
    return folder / "_log" / f"{version:020d}.json"


def tree(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_an_archive_is_the_sum_of_its_commits(tmp_path: Path) -> None:
    archive = log_of(tmp_path, 3)
    assert ArchiveLog(LocalFiles(tmp_path)).read() == archive
    assert (archive.version, archive.rows, archive.positions) == (3, 3, {QUEUE: (30, 7)})
    assert archive.files == {"f1": 1, "f2": 1, "f3": 1}


def test_a_commit_that_another_run_made_first_is_not_overwritten(tmp_path: Path) -> None:
    first = log_of(tmp_path, 1)
    log = ArchiveLog(LocalFiles(tmp_path))
    with pytest.raises(JobError, match="another run has committed"):
        log.append(Archive(), commit_of(Archive(), 2, rows=7))
    assert log.read() == first


def test_a_long_log_is_read_from_its_newest_snapshot(tmp_path: Path) -> None:
    archive = log_of(tmp_path, 120)
    files = LocalFiles(tmp_path)
    assert ArchiveLog(files).read() == archive
    assert archive.rows == 120
    assert len(files.names("_log")) < 80


@pytest.mark.parametrize(
    ("commits", "lost"),
    [(3, 1), (3, 2), (3, 3), (1, 1), (60, 51), (60, 60), (101, 101)],
)
def test_a_missing_commit_is_named_at_any_position(tmp_path: Path, commits: int, lost: int) -> None:
    log_of(tmp_path, commits)
    commit_file(tmp_path, lost).unlink()
    with pytest.raises(JobError) as caught:
        ArchiveLog(LocalFiles(tmp_path)).read()
    assert f"{commit_file(tmp_path, lost)} is missing" in str(caught.value)
    assert f"has commits up to {commits}" in str(caught.value)


def test_commits_that_a_snapshot_covers_are_not_missed(tmp_path: Path) -> None:
    archive = log_of(tmp_path, 60)
    for version in (7, 50):
        commit_file(tmp_path, version).unlink()
    assert ArchiveLog(LocalFiles(tmp_path)).read() == archive


def test_a_snapshot_that_is_missing_is_made_up_for_by_the_one_before_it(tmp_path: Path) -> None:
    archive = log_of(tmp_path, 110)
    (tmp_path / "_log" / f"{100:020d}.snapshot.json").unlink()
    assert ArchiveLog(LocalFiles(tmp_path)).read() == archive
    (tmp_path / "_log" / f"{50:020d}.snapshot.json").unlink()
    with pytest.raises(JobError, match=f"{commit_file(tmp_path, 1)} is missing"):
        ArchiveLog(LocalFiles(tmp_path)).read()


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "was cut short: its 0 bytes"),
    "half": (lambda data: data[: len(data) // 2], "was cut short"),
    "one byte short": (lambda data: data[:-1], "was cut short"),
    "zeros": (lambda data: bytes(len(data)), "was cut short"),
    "another number": (
        lambda data: data.replace(b'"version":', b'"version":1'),
        "is damaged: its checksum is",
    ),
    "no JSON": (lambda data: b"{,}", "is damaged: it is not JSON"),
    "another object": (
        lambda data: b'{"format":2}',
        "is damaged: it is not a record of an archive",
    ),
    "of the future": (
        lambda data: encode_record({"format": 3}),
        "is of format 3, and this version reads formats up to 2",
    ),
}


@pytest.mark.parametrize("name", [f"{2:020d}.json", f"{50:020d}.snapshot.json", "archive.json"])
@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_an_incomplete_record_is_distinguished_from_a_missing_one(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes], said: str
) -> None:
    log_of(tmp_path, 50 if "snapshot" in name else 3)
    path = tmp_path / "_log" / name
    path.write_bytes(damage(path.read_bytes()))
    before = tree(tmp_path)
    with pytest.raises(JobError) as caught:
        ArchiveLog(LocalFiles(tmp_path)).read()
    assert f"{path} {said}" in str(caught.value)
    assert "Nothing is read, written or deleted" in str(caught.value)
    assert tree(tmp_path) == before


def test_an_archive_without_its_identity_is_refused(tmp_path: Path) -> None:
    log_of(tmp_path, 2)
    (tmp_path / "_log" / "archive.json").unlink()
    with pytest.raises(JobError, match=f"{tmp_path}/_log/archive.json is missing"):
        ArchiveLog(LocalFiles(tmp_path)).read()


def test_a_commit_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    log_of(tmp_path, 2)
    commit_file(tmp_path, 2).write_bytes(commit_file(tmp_path, 1).read_bytes())
    with pytest.raises(JobError, match=f"{commit_file(tmp_path, 2)} does not match its name"):
        ArchiveLog(LocalFiles(tmp_path)).read()


def test_a_run_killed_before_it_recorded_its_last_commit_is_not_damage(
    tmp_path: Path,
) -> None:
    archive = log_of(tmp_path, 2)
    log = ArchiveLog(LocalFiles(tmp_path))
    after = log.append(archive, commit_of(archive, 3, rows=1))
    assert log.read() == after
    identity = log.identity()
    assert identity is not None
    assert (identity.id, identity.version) == ("1a2b3c4d", 2)


def test_drafts_of_a_run_that_was_killed_are_not_read(tmp_path: Path) -> None:
    archive = log_of(tmp_path, 2)
    for name in (f"{3:020d}.json.unfinished", "archive.json.unfinished", f".{3:020d}.json.crc"):
        (tmp_path / "_log" / name).write_bytes(b'{"ver')
    assert ArchiveLog(LocalFiles(tmp_path)).read() == archive


def test_an_archive_of_the_first_format_is_read(tmp_path: Path) -> None:
    archive = Archive()
    (tmp_path / "_log").mkdir()
    for version in (1, 2):
        commit = commit_of(archive, version, add={f"f{version}": 1}, rows=1)
        commit_file(tmp_path, version).write_text(json.dumps(commit))
        archive = archive.after(commit)
    log = ArchiveLog(LocalFiles(tmp_path))
    assert log.read() == archive
    assert log.identity() is None
    commit_file(tmp_path, 1).unlink()
    with pytest.raises(JobError, match=f"{commit_file(tmp_path, 1)} is missing"):
        log.read()


def test_a_concurrent_reader_sees_only_complete_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits and a snapshot are made between the looks of a reader."""
    log_of(tmp_path, 99)
    files = LocalFiles(tmp_path)
    written: list[Archive] = []
    names = LocalFiles.names

    def writing(self: LocalFiles, folder: str = "") -> list[str]:
        found = names(self, folder)
        if not written:
            monkeypatch.undo()
            written.append(log_of(tmp_path, 2, first=100))
        return found

    monkeypatch.setattr(LocalFiles, "names", writing)
    assert ArchiveLog(files).read().version in (99, 101)
    assert written[0].version == 101
