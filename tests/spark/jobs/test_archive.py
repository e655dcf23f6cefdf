"""Topics to Parquet, each message once."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.jobs.archive import (
    ArchiveJob,
    archive_forever,
    archive_once,
    compact_archive,
    opened_archive,
    read_archive,
)
from sparrowmq.spark.jobs.archive_compact import CompactionRule
from sparrowmq.spark.jobs.archive_files import LocalFiles
from sparrowmq.spark.jobs.archive_log import ArchiveLog, partition_of
from sparrowmq.spark.jobs.archive_query import Question, dated
from sparrowmq.spark.jobs.job import JobError, JobStep
from sparrowmq.spark.schema import READ_NAMES
from tests.spark.jobs.backlog import bodies, fill_topic, offsets_of, sizes, table
from tests.spark.jobs.dying import Died, die_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.testing import Cluster

STEPS = ("planned", "written", "moved", "committed", "progress")
COMPACTION_STEPS = ("compacted", "compacted moved", "compacted committed")


def job_of(
    running: Cluster, folder: Path, topic: str, *, batch: int = 1000, **more: int
) -> ArchiveJob:
    return ArchiveJob(
        name_server=running.name_server,
        to=str(folder),
        topics=(topic,),
        group=f"archive-{topic}",
        batch_rows=batch,
        compaction=CompactionRule(**{"least_files": 0, **more}),
    )


def test_an_archive_holds_every_message_once_and_its_group_shows_the_progress(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = fill_topic(running, "archive-all", 90)
    job = job_of(running, tmp_path, "archive-all", batch=50)
    reported: list[JobStep] = []
    with opened_archive(spark, job, reported.append) as archiver:
        archive_once(archiver)
    assert [(step.name, step.rows) for step in reported] == [
        *((name, 50) for name in STEPS),
        *((name, 40) for name in STEPS),
    ]
    assert offsets_of(running, "archive-archive-all", "archive-all") == sizes(
        running, "archive-all"
    )

    later = fill_topic(running, "archive-all", 10, first=90)
    rounds: list[int] = []

    def wait() -> bool:
        rounds.append(len(rounds))
        return False

    with opened_archive(spark, job) as archiver:
        assert archiver.archive.rows == 90
        archive_forever(archiver, wait)
    assert rounds == [0]
    read = read_archive(spark, str(tmp_path))
    wanted = rows_of(table(spark, running, "archive-all"))
    assert rows_of(read) == wanted
    assert [row[7] for row in wanted] == sent + later


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """All columns of a topic, row by row, in the order of the bodies."""
    return sorted((tuple(row) for row in frame.select(*READ_NAMES).collect()), key=itemgetter(7))


@pytest.mark.slow
def test_runs_that_die_after_any_step_are_finished_by_the_next(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent: list[bytes] = []
    job = job_of(running, tmp_path, "archive-dies", batch=20)
    for step in STEPS:
        sent += fill_topic(running, "archive-dies", 10, first=len(sent))
        with pytest.raises(Died), opened_archive(spark, job, die_at(step)) as archiver:
            archive_once(archiver)
    with opened_archive(spark, job) as archiver:
        archive_once(archiver)
        assert archiver.archive.rows == len(sent)
        names = LocalFiles(tmp_path).data_files()
    assert names.keys() == archiver.archive.files.keys()
    read = rows_of(read_archive(spark, str(tmp_path)))
    assert read == rows_of(table(spark, running, "archive-dies"))
    # Readers that do not know the log see the same.
    assert bodies(spark.read.parquet(str(tmp_path))) == sent


def filled(spark: SparkSession, running: Cluster, folder: Path, topic: str) -> list[bytes]:
    """An archive of two commits with two files each."""
    sent = fill_topic(running, topic, 30)
    with opened_archive(spark, job_of(running, folder, topic, batch=20)) as archiver:
        archive_once(archiver)
    return sent


@pytest.mark.slow
def test_readers_see_the_same_rows_before_during_and_after_compactions_that_die(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = filled(spark, running, tmp_path, "compact-dies")
    before = read_archive(spark, str(tmp_path))
    for step in COMPACTION_STEPS:
        with pytest.raises(Died):
            compact_archive(spark, str(tmp_path), CompactionRule(), die_at(step))
        assert bodies(read_archive(spark, str(tmp_path))) == sent
    assert bodies(before) == sent  # its files are still there
    assert len(ArchiveLog(LocalFiles(tmp_path)).read().files) == 1


def test_files_that_no_reader_can_use_any_more_are_dropped_after_their_time(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = fill_topic(running, "compact-drop", 30)
    job = job_of(running, tmp_path, "compact-drop", batch=20, least_files=4)
    with opened_archive(spark, job, clock=lambda: 5_000) as archiver:
        archive_once(archiver)  # and compacts as soon as there are four files
        assert len(archiver.archive.files) == 1
    files = LocalFiles(tmp_path)
    rule = CompactionRule(keep_removed_ms=1000)
    compact_archive(spark, str(tmp_path), rule, clock=lambda: 5_999)
    assert len(files.data_files()) == 5
    compact_archive(spark, str(tmp_path), rule, clock=lambda: 6_000)
    assert len(files.data_files()) == 1
    assert bodies(spark.read.parquet(str(tmp_path))) == sent


@pytest.mark.slow
def test_questions_find_messages_by_key_id_tag_topic_and_time(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    filled(spark, running, tmp_path, "archive-asked")

    def asked(**question: object) -> list[bytes]:
        return bodies(read_archive(spark, str(tmp_path), Question(**question)))  # type: ignore[arg-type]

    assert asked(key="k3") == [b"000003", b"000010", b"000017", b"000024"]
    assert asked(key="k3", tag="t1") == [b"000003", b"000017"]
    assert len(asked(topic="archive-asked")) == 30
    missing = "topic other is not in the archive .*; it has archive-asked$"
    with pytest.raises(JobError, match=missing):
        asked(topic="other")
    rows = read_archive(spark, str(tmp_path)).where("body = X'303030303133'").collect()
    (row,) = rows
    assert asked(msg_id=row.msgId) == [b"000013"]
    at = row.storeTimestamp.astimezone(UTC)
    found = asked(since=at, until=at + timedelta(microseconds=1))
    assert b"000013" in found
    assert asked(until=at - timedelta(days=2)) == []


def test_a_question_about_a_day_reads_just_the_files_of_that_day() -> None:
    today = datetime(2026, 11, 15, 12, tzinfo=UTC)
    name = "topic=%25RETRY%25g/date=2026-11-15/0000000001-0000.parquet"
    assert partition_of(name) == ("%RETRY%g", date(2026, 11, 15))
    question = Question(topic="%RETRY%g", since=today, until=today + timedelta(hours=1))
    assert question.wants(*partition_of(name))
    assert not question.wants("%RETRY%g", date(2026, 11, 14))
    assert not question.wants("%RETRY%g", date(2026, 11, 16))
    assert not question.wants("orders", date(2026, 11, 15))


def test_the_date_is_that_of_utc_whatever_zone_the_session_has(spark: SparkSession) -> None:
    frame = spark.sql("select timestamp_micros(1794743999999999L) as storeTimestamp")
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        assert dated(frame).collect()[0].date == date(2026, 11, 15)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def test_only_one_run_at_a_time_works_on_an_archive(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill_topic(running, "archive-alone", 2)
    job = job_of(running, tmp_path, "archive-alone")
    with (
        opened_archive(spark, job),
        pytest.raises(JobError, match="another run works on this archive"),
        opened_archive(spark, job),
    ):
        pass


def test_a_folder_without_an_archive_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="there is no archive in"):
        read_archive(spark, str(tmp_path))
    with pytest.raises(JobError, match="there is no archive in"):
        compact_archive(spark, str(tmp_path), CompactionRule())
