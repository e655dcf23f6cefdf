"""Executors and Python workers that die during a task: a cluster repeats their tasks, a local
master does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.testing import Cluster

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from tests.faults.spark_jobs import spark_jobs
from tests.spark.executed import QUEUES, ROWS_A_BATCH, TOPIC
from tests.spark.executor_kill import LONE, MESSAGES, Kill
from tests.spark.killed_executors import ExecutorKills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_task_whose_executor_dies_is_repeated_without_loss_and_with_keys_in_order() -> None:
    scored = spark_jobs(seed=0, small=True, only="executor of topic")
    assert not scored.failures
    # What the killed task had sent is sent again, to the same queues.
    assert scored.counts == f"1 kills, {MESSAGES} messages, {ROWS_A_BATCH // QUEUES} sent twice"


@pytest.mark.slow
def test_a_query_whose_worker_dies_fails_and_resumes_exactly_there(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    kills = ExecutorKills(running.name_server, spark, tmp_path)
    # The worst moment of a sink: everything is sent, and Spark does not know.
    assert not list(kills.judged(Kill(LONE, TOPIC, "after sending")))
    assert 0 < kills.twice <= ROWS_A_BATCH
