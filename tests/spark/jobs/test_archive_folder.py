"""Which files in the folder of an archive belong to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparrowmq.spark.jobs.archive_files import LocalFiles
from sparrowmq.spark.jobs.archive_folder import ArchiveFolder, mark_of, opened_folder
from sparrowmq.spark.jobs.archive_log import Archive, commit_of
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.jobs.journal import FolderLock
from tests.spark.jobs.test_archive_log import commit_file, tree

DAY = "topic=orders/date=2026-11-15"


def write(path: Path, text: str = "rows") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def staged(folder: ArchiveFolder, where: Path, count: int = 1) -> None:
    """Files as Spark stages them."""
    staging = where / folder.stage()
    for number in range(count):
        write(staging / DAY / f"part-{number}.parquet")
    write(staging / "_SUCCESS", "")


def archive_a_file(folder: ArchiveFolder, where: Path, count: int = 1) -> dict[str, int]:
    staged(folder, where, count)
    added = folder.settle()
    folder.commit(commit_of(folder.archive, 1, add=added, rows=count))
    return added


def archive_in(where: Path, commits: int = 2) -> Archive:
    with opened_folder(LocalFiles(where)) as folder:
        for _ in range(commits):
            archive_a_file(folder, where)
        return folder.archive


def test_staged_files_get_names_that_bear_the_archive_s_mark(tmp_path: Path) -> None:
    with opened_folder(LocalFiles(tmp_path)) as folder:
        first = archive_a_file(folder, tmp_path, 2)
        second = archive_a_file(folder, tmp_path)
    marks = [mark_of(name) for name in (*first, *second)]
    assert [mark.version for mark in marks if mark] == [1, 1, 2]
    assert len({(mark.archive_id, mark.run) for mark in marks if mark}) == 1
    assert len({*first, *second}) == 3
    assert all((tmp_path / name).read_text() == "rows" for name in (*first, *second))
    assert LocalFiles(tmp_path).names("_staging") == []
    with opened_folder(LocalFiles(tmp_path)) as again:
        assert again.archive.files == first | second


FOREIGN = {
    "a warehouse": ["sales/part-0.parquet"],
    "a table": ["date=2026-11-15/0000000001-0000.parquet"],
    "many things": [f"table-{number}/_SUCCESS" for number in range(9)],
    "a log of something else": ["_log/today.txt"],
    "one empty folder": ["x/"],
    "a lock of another program": ["_lock"],
}


@pytest.mark.parametrize("names", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_that_is_neither_empty_nor_an_archive_is_refused_and_stays(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        if name.endswith("/"):
            (tmp_path / name).mkdir()
        else:
            write(tmp_path / name)
    before = tree(tmp_path)
    with (
        pytest.raises(JobError, match=f"{tmp_path} is not empty and not an archive") as caught,
        opened_folder(LocalFiles(tmp_path)),
    ):
        pass
    assert names[0].partition("/")[0] in str(caught.value)
    assert "name another with --to" in str(caught.value)
    assert ("and 4 more" in str(caught.value)) == (len(names) == 9)
    assert tree(tmp_path) == before


def test_an_empty_folder_and_one_that_does_not_exist_become_archives(tmp_path: Path) -> None:
    for where in (tmp_path / "new" / "deep", tmp_path / "empty"):
        if where.name == "empty":
            where.mkdir()
        assert archive_in(where).version == 2


def test_a_run_that_ends_before_writing_leaves_no_files(tmp_path: Path) -> None:
    with opened_folder(LocalFiles(tmp_path / "a" / "b")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_that_died_has_left_is_deleted(tmp_path: Path) -> None:
    archive_in(tmp_path)
    with opened_folder(LocalFiles(tmp_path)) as folder:
        staged(folder, tmp_path, 2)
        folder.settle()  # and dies: two files have names and no commit
        staged(folder, tmp_path)  # and here while Spark was writing
    assert len(LocalFiles(tmp_path).data_files(DAY)) == 4
    with opened_folder(LocalFiles(tmp_path)) as folder:
        assert LocalFiles(tmp_path).data_files().keys() == folder.archive.files.keys()
        assert LocalFiles(tmp_path).names("_staging") == []


def test_files_without_the_archive_s_mark_stay(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    own = mark_of(next(iter(archive.files)))
    assert own is not None
    foreign = [
        f"{DAY}/0000000099-0000.parquet",
        f"{DAY}/0000000099-ffffffff-{own.run}-0000.parquet",
        "sales/part-0.parquet",
        "_staging/notes.parquet",
        f"_staging/0000000099-ffffffff-{own.run}/part-0.parquet",
        "_compacting/part-0.parquet",
        "_log/notes.txt",
    ]
    for name in foreign:
        write(tmp_path / name)
    before = tree(tmp_path)
    assert archive_in(tmp_path, 1).version == 3
    assert before.keys() - tree(tmp_path).keys() == set()


@pytest.mark.parametrize("lost", [1, 2])
def test_nothing_is_deleted_from_an_archive_that_lost_a_commit(tmp_path: Path, lost: int) -> None:
    archive_in(tmp_path)
    commit_file(tmp_path, lost).unlink()
    before = tree(tmp_path)
    with (
        pytest.raises(JobError, match=f"{commit_file(tmp_path, lost)} is missing"),
        opened_folder(LocalFiles(tmp_path)),
    ):
        pass
    assert tree(tmp_path) == before


class RemoteFiles(LocalFiles):
    """A folder that other machines write to as well."""

    @property
    def local_folder(self) -> None:
        """Not here."""


def test_without_locks_the_second_to_commit_fails_and_neither_run_loses_files(
    tmp_path: Path,
) -> None:
    archive_in(tmp_path, 1)
    with opened_folder(RemoteFiles(tmp_path)) as first:
        staged(first, tmp_path)
        added = first.settle()
        with opened_folder(RemoteFiles(tmp_path)) as second:
            staged(second, tmp_path)
            late = second.settle()
            first.commit(commit_of(first.archive, 1, add=added, rows=1))
            with pytest.raises(JobError, match="another run has committed"):
                second.commit(commit_of(second.archive, 1, add=late, rows=1))
    assert {*added, *late} <= LocalFiles(tmp_path).data_files().keys()
    with opened_folder(RemoteFiles(tmp_path)) as third:
        # Its number is taken: it can never be part of the archive.
        assert LocalFiles(tmp_path).data_files().keys() == third.archive.files.keys()


def test_an_archive_of_the_first_format_gets_an_id_before_its_next_file(tmp_path: Path) -> None:
    write(tmp_path / DAY / "0000000001-0000.parquet")
    write(tmp_path / DAY / "0000000002-0000.parquet")  # left from a kill; who knows?
    old = commit_of(Archive(), 1, add={f"{DAY}/0000000001-0000.parquet": 4}, rows=1)
    write(commit_file(tmp_path, 1), str(old).replace("'", '"'))
    with opened_folder(LocalFiles(tmp_path)) as folder:
        archive_a_file(folder, tmp_path)
        assert folder.archive.version == 2
    with opened_folder(LocalFiles(tmp_path)) as again:
        assert len(again.archive.files) == 2
    assert len(LocalFiles(tmp_path).data_files()) == 3


def test_a_lock_file_of_another_program_keeps_its_content(tmp_path: Path) -> None:
    write(tmp_path / "_lock", "mine")
    with FolderLock(tmp_path, "this"):
        pass
    assert (tmp_path / "_lock").read_text() == "mine"


def test_files_and_names_are_on_the_disk_before_a_commit_speaks_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    sync, rename, replace = os.fsync, Path.rename, Path.replace

    def named(path: Path | str) -> str:
        found = mark_of(str(path))
        text = str(Path(path).relative_to(tmp_path)) if Path(path) != tmp_path else "."
        return text.replace(str(found), "MARK")

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done.append(("sync", named(Path(f"/proc/self/fd/{descriptor}").readlink())))

    def renamed(self: Path, target: Path) -> Path:
        done.append(("name", named(target)))
        return rename(self, target)

    def replaced(self: Path, target: Path) -> Path:
        done.append(("name", named(target)))
        return replace(self, target)

    with opened_folder(LocalFiles(tmp_path)) as folder:
        archive_a_file(folder, tmp_path)
        staged(folder, tmp_path)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "fdatasync", synced)
        monkeypatch.setattr(Path, "rename", renamed)
        monkeypatch.setattr(Path, "replace", replaced)
        added = folder.settle()
        folder.commit(commit_of(folder.archive, 1, add=added, rows=1))
    commit = f"_log/{2:020d}.json"
    assert [(what, name) for what, name in done if not name.startswith("_staging")] == [
        ("name", f"{DAY}/MARK-0000.parquet"),
        ("sync", DAY),
        ("sync", f"{commit}.unfinished"),
        ("name", commit),
        ("sync", "_log"),
        ("sync", "_log/archive.json.unfinished"),
        ("name", "_log/archive.json"),
        ("sync", "_log"),
    ]
    assert done[0] == ("sync", f"_staging/{folder_mark(added)}/{DAY}/part-0.parquet")


def folder_mark(added: dict[str, int]) -> str:
    return str(mark_of(next(iter(added))))
