"""Drivers that are killed in the middle of a stream, and the queries that resume it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.repo.tree import ROOT
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import table
from tests.spark.killed_query import (
    MESSAGES,
    ROWS_A_BATCH,
    committed_offsets,
    copy_of,
    copy_problems,
    file_problems,
    group_offsets,
    run_query,
)
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

KILLED = -9
TOPIC = "killed"


def begin(running: Cluster, kind: str, folder: Path, point: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.spark.killed_query", running.name_server, kind, TOPIC]
    return subprocess.Popen(
        [*command, str(folder), point],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
def test_drivers_killed_between_write_and_commit_lose_nothing_and_repeat_one_batch(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill(running, TOPIC, MESSAGES)
    files, copies = tmp_path / "files", tmp_path / "copies"
    for folder in (files, copies):
        folder.mkdir()
    create_topic(running, copy_of(TOPIC, copies), 2)
    # The worst moments: files are written and not committed, rows are sent and not reported.
    children = [
        begin(running, "files", files, "written"),
        begin(running, "topic", copies, "committed"),
    ]
    for child in children:
        _, errors = child.communicate()
        assert child.returncode == KILLED, errors[-4000:]
    for folder in (files, copies):
        assert [path.name for path in (folder / "checkpoint/commits").glob("[0-9]*")] == ["0"]
        assert sum(committed_offsets(folder).values()) == ROWS_A_BATCH
        # The group stands exactly after the batch that Spark has committed.
        assert group_offsets(running.name_server, TOPIC, folder) == committed_offsets(folder)

    run_query(spark, running.name_server, "files", TOPIC, files)
    run_query(spark, running.name_server, "topic", TOPIC, copies)
    live = table(spark, running, TOPIC)
    assert not list(file_problems(live, files))
    copied = table(spark, running, copy_of(TOPIC, copies))
    assert not list(copy_problems(live, copied, "committed"))
