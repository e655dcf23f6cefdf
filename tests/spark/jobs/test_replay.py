"""A time range of a topic, sent again."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.spark.jobs.archive import archive_once, opened_archive
from sparrowmq.spark.jobs.copy import Copied
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayJob, ReplayRun, journal_folder
from sparrowmq.spark.wire.cluster import RemoteCluster
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import bodies, fill_topic, table
from tests.spark.jobs.dying import Died, die_at
from tests.spark.jobs.test_archive import job_of as archive_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def in_2100() -> int:
    """A clock: no message of these tests is later."""
    return int(LATER.timestamp() * 1000)


def job_of(running: Cluster, topic: str, **more: Any) -> ReplayJob:
    values = {
        "name_server": running.name_server,
        "topic": topic,
        "to": f"{topic}-again",
        "since": LONG_AGO,
        "until": LATER,
        **more,
    }
    return ReplayJob(**values)


def replayed(spark: SparkSession, job: ReplayJob, folder: Path) -> Copied:
    with JobJournal(folder_of(folder, job)) as journal:
        return ReplayRun(spark, job, journal, in_2100).run()


def folder_of(folder: Path, job: ReplayJob) -> Path:
    with RemoteCluster(job.name_server) as wire:
        return journal_folder(folder, job, wire)


def prepared(running: Cluster, topic: str, count: int) -> list[bytes]:
    create_topic(running, f"{topic}-again", 3)
    return fill_topic(running, topic, count)


def test_a_range_is_sent_once_however_often_it_is_replayed(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = prepared(running, "replay-all", 50)
    job = job_of(running, "replay-all")
    assert replayed(spark, job, tmp_path).sent == 50
    again = replayed(spark, job, tmp_path)
    assert (again.sent, again.is_finished) == (50, True)
    found = table(spark, running, job.to)
    assert bodies(found) == sent
    row = found.where("body = X'303030303035'").first()
    assert row is not None
    assert (row["keys"], row["tags"]) == (["k5"], "t1")


def test_a_condition_and_a_range_select_the_messages(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    prepared(running, "replay-some", 30)
    job = job_of(running, "replay-some", where="array_contains(keys, 'k3') and tags = 't1'")
    assert replayed(spark, job, tmp_path).sent == 2
    assert bodies(table(spark, running, job.to)) == [b"000003", b"000017"]
    past = job_of(running, "replay-some", until=LONG_AGO + timedelta(days=1))
    assert replayed(spark, past, tmp_path).sent == 0


@pytest.mark.slow
def test_a_range_of_an_archive_is_sent_like_one_of_the_live_topic(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = prepared(running, "replay-old", 30)
    with opened_archive(spark, archive_job(running, tmp_path / "a", "replay-old")) as archiver:
        archive_once(archiver)
    job = job_of(running, "replay-old", archive=str(tmp_path / "a"), batch_rows=12)
    copied = replayed(spark, job, tmp_path)
    assert copied.sent == 30
    assert copied.batches > 1
    assert bodies(table(spark, running, job.to)) == sent


def test_a_resumed_run_completes_and_reports_possible_duplicates(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = prepared(running, "replay-dies", 30)
    job = job_of(running, "replay-dies", batch_rows=12)
    with JobJournal(folder_of(tmp_path, job)) as journal, pytest.raises(Died):
        ReplayRun(spark, job, journal, in_2100).run(die_at("sent", times=2))
    copied = replayed(spark, job, tmp_path)
    assert (copied.sent, copied.repeated) == (30, 12)
    found = bodies(table(spark, running, job.to))
    assert sorted(set(found)) == sent
    assert len(found) == 42


@pytest.mark.slow
def test_a_worker_killed_midway_loses_nothing(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = prepared(running, "replay-killed", 30)
    once = tmp_path / "killed"

    def die_once(body: bytes) -> bool:
        if body == b"000017" and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    spark.udf.register("die_once", die_once, "boolean")
    job = job_of(running, "replay-killed", where="die_once(body)", batch_rows=12)
    with pytest.raises(Exception, match="exited unexpectedly"):
        replayed(spark, job, tmp_path)
    assert once.exists()
    copied = replayed(spark, job, tmp_path)
    assert copied.sent == 30
    found = bodies(table(spark, running, job.to))
    assert sorted(set(found)) == sent
    assert len(found) <= 30 + copied.repeated <= 42


def test_a_replay_may_continue_with_another_batch_size_and_repeats_the_cut_batch_unchanged(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = prepared(running, "replay-steps", 30)
    begun, other = (job_of(running, "replay-steps", batch_rows=size) for size in (12, 100))
    assert folder_of(tmp_path, begun) == folder_of(tmp_path, other)
    with JobJournal(folder_of(tmp_path, begun)) as journal, pytest.raises(Died):
        ReplayRun(spark, begun, journal, in_2100).run(die_at("sent"))
    copied = replayed(spark, other, tmp_path)
    # One of 12 that was repeated, one of what was left, and its remainder.
    assert (copied.sent, copied.repeated) == (30, 12)
    assert copied.batches <= 3
    frame = table(spark, running, other.to)
    assert frame.count() == 42
    assert bodies(frame.dropDuplicates(["msgId"])) == sent


def test_the_status_of_a_replay_shows_what_is_left_and_changes_nothing(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    prepared(running, "replay-look", 30)
    job = job_of(running, "replay-look", batch_rows=12, where="tags = 't1'")
    folder = folder_of(tmp_path, job)
    with JobJournal(folder) as journal:
        work = ReplayRun(spark, job, journal, in_2100)
        found = work.look()
        assert (found.wanted, found.looked_at, work.count(found)) == (30, 0, 15)
    assert not folder.exists()
    with JobJournal(folder) as journal:
        work = ReplayRun(spark, job, journal, in_2100)
        with pytest.raises(Died):
            work.run(die_at("committed"))
        before = journal.read()
        found = work.look()
        assert found.wanted - found.looked_at == sum(part.size for part in found.left) == 18
        assert work.look(again=True).looked_at == 0
        assert journal.read() == before
