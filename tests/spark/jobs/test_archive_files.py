"""Files of an archive, on this machine's disk and by way of Hadoop: both do the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.jobs.archive_files import ArchiveFiles, HadoopFiles, LocalFiles, archive_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["local", "hadoop"])
def files(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[ArchiveFiles]:
    yield LocalFiles(tmp_path) if request.param == "local" else HadoopFiles(spark, str(tmp_path))


def test_a_file_is_made_once_and_read_back(files: ArchiveFiles) -> None:
    assert files.create("_log/1.json", b"first")
    assert not files.create("_log/1.json", b"second")
    assert files.read("_log/1.json") == b"first"
    files.replace("_log/1.json", b"third")
    files.replace("_log/2.json", b"new")
    assert files.read("_log/1.json") == b"third"
    assert files.names("_log") == ["1.json", "2.json"]
    assert files.names() == ["_log"]


def test_what_is_not_there_has_no_names_and_cannot_be_read(files: ArchiveFiles) -> None:
    assert files.names("_log") == []
    assert files.data_files("_staging/x") == {}
    files.delete("_staging/x")
    with pytest.raises(FileNotFoundError):
        files.read("_log/1.json")


def test_data_files_are_found_moved_and_deleted(files: ArchiveFiles, tmp_path: Path) -> None:
    staging = "_staging/mark/topic=%25RETRY%25g/date=2026-11-15"
    for name, text in {"a.parquet": "one", "b.parquet": "three", "_SUCCESS": ""}.items():
        (tmp_path / staging).mkdir(parents=True, exist_ok=True)
        (tmp_path / staging / name).write_text(text)
    (tmp_path / staging / ".a.parquet.crc").write_text("sum")
    day = "topic=%25RETRY%25g/date=2026-11-15"
    assert files.data_files("_staging/mark") == {f"{day}/a.parquet": 3, f"{day}/b.parquet": 5}
    files.move({f"{staging}/{name}.parquet": f"{day}/{name}-1.parquet" for name in "ab"})
    files.delete("_staging/mark")
    assert files.data_files() == {f"{day}/a-1.parquet": 3, f"{day}/b-1.parquet": 5}
    files.delete(f"{day}/a-1.parquet")
    assert files.names(day) == ["b-1.parquet"]
    assert files.names("_staging") == []


def test_folders_of_this_machine_are_found_by_every_spelling(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("arc", "./arc", "arc/", str(tmp_path / "arc"), f"file:{tmp_path}/arc"):
        found = archive_files(spark, text)
        assert (found.local_folder, found.root) == (tmp_path / "arc", f"file:{tmp_path}/arc")
