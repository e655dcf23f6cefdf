"""Batch writes whose driver is killed while tasks send, done again under the same jobId."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.frames import deduplicated
from tests.repo.tree import ROOT
from tests.spark.admin import create_topic
from tests.spark.death import DIED, ROWS_BEFORE
from tests.spark.executed import (
    BATCH,
    COPIED,
    QUEUES,
    ROWS_A_QUEUE,
    Executed,
    fill,
    order_problems,
    rows_of,
)
from tests.spark.jobs.backlog import table
from tests.spark.killed_query import copy_of, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

KILLED = -9
TOPIC = "written"
MESSAGES = QUEUES * ROWS_A_QUEUE
SENT = {
    "while sending": ROWS_BEFORE - 1,
    "before the answer": ROWS_A_QUEUE - 1,
    "after sending": ROWS_A_QUEUE,
}
"""By point: what the task that dies has certainly sent. The other task may have sent all."""


def begin(running: Cluster, folder: Path, point: str) -> subprocess.Popen[str]:
    words = [running.name_server, TOPIC, str(folder), point]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.killed_write", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
def test_a_write_that_is_done_again_has_every_row_and_its_repeated_ones_have_their_old_ids(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill(running.name_server, TOPIC)
    children = {}
    for point in SENT:
        folder = tmp_path / point.replace(" ", "-")
        folder.mkdir()
        create_topic(running, copy_of(TOPIC, folder), QUEUES)
        children[point, folder] = begin(running, folder, point)
    for child in children.values():
        _, errors = child.communicate()
        assert child.returncode == KILLED, errors[-4000:]
    queries = Executed(spark, running.name_server, TOPIC)
    (tmp_path / "calm").mkdir()
    create_topic(running, copy_of(TOPIC, tmp_path / "calm"), QUEUES)
    queries.run(BATCH, tmp_path / "calm", "rocketmq", {})
    calm = rows_of(queries.result(BATCH, tmp_path / "calm").select(*COPIED))
    assert sum(calm.values()) == MESSAGES
    for point, folder in children:
        assert (folder / DIED).exists(), point
        before = table(spark, running, copy_of(TOPIC, folder)).count()
        assert SENT[point] <= before < MESSAGES + 1, point
        queries.run(BATCH, folder, "rocketmq", {})
        found = queries.result(BATCH, folder)
        assert found.count() == before + MESSAGES, point
        assert not list(differences(calm, rows_of(deduplicated(found).select(*COPIED)))), point
        assert not list(order_problems(found)), point
