"""An archive in a foreign folder, or with an incomplete log, changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.spark.jobs.archive import archive_once, compact_archive, opened_archive, read_archive
from sparrowmq.spark.jobs.archive_compact import CompactionRule
from sparrowmq.spark.jobs.job import JobError, JobStep
from tests.spark.jobs.backlog import bodies, fill_topic
from tests.spark.jobs.test_archive import STEPS, filled, job_of
from tests.spark.jobs.test_archive_log import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster


def test_a_warehouse_is_refused_as_an_archive_and_stays_unchanged(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill_topic(running, "guard-warehouse", 4)
    warehouse = tmp_path / "warehouse"
    spark.range(5).write.parquet(str(warehouse / "sales"))
    (warehouse / "_lock").write_text("of another program")
    before = tree(tmp_path)
    where = ["--to", str(warehouse), "--name-server", running.name_server]
    done = CliRunner().invoke(
        app, ["pipeline", "archive", "--topics", "guard-warehouse", "--once", *where]
    )
    assert tree(tmp_path) == before
    assert done.exit_code == 1, done.output
    assert f"{warehouse} is not empty and not an archive" in done.output
    assert "sales" in done.output
    assert "--to" in done.output


def compacted(spark: SparkSession, running: Cluster, folder: Path, topic: str) -> None:
    compact_archive(spark, str(folder), CompactionRule())


def archived(spark: SparkSession, running: Cluster, folder: Path, topic: str) -> None:
    with opened_archive(spark, job_of(running, folder, topic)) as archiver:
        archive_once(archiver)


def read(spark: SparkSession, running: Cluster, folder: Path, topic: str) -> None:
    read_archive(spark, str(folder))


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, running: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A topic and its archive of two commits, for tests that damage a copy of it."""
    folder = tmp_path_factory.mktemp("archive")
    filled(spark, running, folder, "guard-made")
    return "guard-made", folder


@pytest.fixture
def topic(made: tuple[str, Path], tmp_path: Path) -> str:
    """The topic whose archive lies in the test's folder."""
    name, folder = made
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return name


@pytest.mark.parametrize("lost", [1, 2], ids=["in the middle", "the newest"])
@pytest.mark.parametrize("work", [archived, compacted, read])
def test_an_archive_whose_log_lost_a_commit_is_refused_and_stays_unchanged(
    spark: SparkSession,
    running: Cluster,
    topic: str,
    tmp_path: Path,
    work: Callable[[SparkSession, Cluster, Path, str], None],
    lost: int,
) -> None:
    commit = tmp_path / "_log" / f"{lost:020d}.json"
    commit.unlink()
    before = tree(tmp_path)
    with pytest.raises(JobError, match=f"{commit} is missing"):
        work(spark, running, tmp_path, topic)
    assert tree(tmp_path) == before


def test_files_of_others_inside_of_an_archive_stay(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    filled(spark, running, tmp_path, "guard-inside")
    day = next(tmp_path.glob("topic=*/date=*"))
    foreign = {
        "sales/part-0.parquet": b"somebody's",
        f"{day.relative_to(tmp_path)}/0000000099-0000.parquet": b"somebody's",
        "_staging/notes.txt": b"somebody's",
        "_compacting/notes.txt": b"somebody's",
    }
    for name, content in foreign.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    archived(spark, running, tmp_path, "guard-inside")
    compacted(spark, running, tmp_path, "guard-inside")
    assert foreign.items() <= tree(tmp_path).items()


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_a_second_topic_is_added_to_an_archive(
    spark: SparkSession, running: Cluster, tmp_path: Path, together: bool
) -> None:
    first, second = f"guard-first-{together}", f"guard-second-{together}"
    sent = filled(spark, running, tmp_path, first)
    sent += fill_topic(running, second, 20, first=0)
    topics = f"{first},{second}" if together else second
    done = CliRunner().invoke(
        app,
        [
            *("pipeline", "archive", "--once", "--topics", topics, "--to", str(tmp_path)),
            *("--name-server", running.name_server),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "20 messages archived now, 50 in all" in done.output
    assert bodies(read_archive(spark, str(tmp_path))) == sorted(sent)
    archived(spark, running, tmp_path, first)
    assert bodies(read_archive(spark, str(tmp_path))) == sorted(sent)


def test_a_compaction_during_a_run_of_the_archive_is_refused_and_changes_nothing(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = filled(spark, running, tmp_path, "guard-beside")
    sent += fill_topic(running, "guard-beside", 10, first=len(sent))
    tried: list[str] = []

    def compacting(step: JobStep) -> None:
        before = tree(tmp_path)
        with pytest.raises(JobError, match="another run works on this archive"):
            compacted(spark, running, tmp_path, "guard-beside")
        assert tree(tmp_path) == before
        tried.append(step.name)

    with opened_archive(spark, job_of(running, tmp_path, "guard-beside"), compacting) as archiver:
        archive_once(archiver)
    assert tried == list(STEPS)
    compacted(spark, running, tmp_path, "guard-beside")
    assert bodies(read_archive(spark, str(tmp_path))) == sent


@pytest.mark.parametrize("damage", ["half", "gone"])
def test_a_data_file_that_is_not_whole_stops_readers_and_compaction(
    spark: SparkSession, running: Cluster, topic: str, tmp_path: Path, damage: str
) -> None:
    stored = next(tmp_path.glob("topic=*/date=*/*.parquet"))
    data = stored.read_bytes()
    stored.unlink()
    if damage == "half":
        stored.write_bytes(data[: len(data) // 2])
    before = tree(tmp_path)
    with pytest.raises(JobError, match=f"{stored.name} "):
        compacted(spark, running, tmp_path, topic)
    with pytest.raises(JobError, match=f"{stored.name} "):
        read(spark, running, tmp_path, topic)
    assert tree(tmp_path) == before
