"""Jobs whose driver process is killed; `./dev faults --row 16` kills them at every step."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.jobs.archive import archive_once, opened_archive, read_archive
from sparrowmq.spark.jobs.drain import DrainRun, drain_report
from sparrowmq.spark.jobs.job import AdminOperator
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.wire.cluster import RemoteCluster
from tests.repo.tree import ROOT
from tests.spark.jobs.backlog import bodies, fill_topic, put_group, table
from tests.spark.jobs.killed_job import ROWS_A_BATCH, archive_job, drain_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster


def begin(
    running: Cluster, kind: str, topic: str, folder: Path, step: str
) -> subprocess.Popen[str]:
    module = [sys.executable, "-m", "tests.spark.jobs.killed_job"]
    arguments = [running.name_server, kind, topic, str(folder), step]
    return subprocess.Popen(
        [*module, *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
def test_an_archive_and_a_drain_whose_drivers_are_killed_before_a_commit_are_finished(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    archived = fill_topic(running, "killed-archive", 60)
    drained = fill_topic(running, "killed-drain", 60)
    put_group(running, "slow-killed-drain", "killed-drain")
    children = [
        begin(running, "archive", "killed-archive", tmp_path, "moved"),
        begin(running, "drain", "killed-drain", tmp_path, "sent"),
    ]
    for child in children:
        _, errors = child.communicate()
        assert child.returncode == -signal.SIGKILL, errors

    job = archive_job(running.name_server, "killed-archive", tmp_path)
    with opened_archive(spark, job) as archiver:
        assert archiver.archive.rows == 0
        archive_once(archiver)
    assert bodies(read_archive(spark, job.to)) == archived

    drain = drain_job(running.name_server, "killed-drain", tmp_path)
    with RemoteCluster(running.name_server) as wire, JobJournal(drain.state) as journal:
        work = DrainRun(drain, wire, AdminOperator(running.name_server), journal)
        copied = work.run(spark)
        report = drain_report(work, "fast")
    assert (copied.sent, copied.repeated, report.twice) == (60, ROWS_A_BATCH, ROWS_A_BATCH)
    assert sorted(set(bodies(table(spark, running, drain.to)))) == drained
