"""Python workers of a local master that die during a task: their tasks are not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.testing import Cluster

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from tests.spark.executed import ROWS_A_BATCH, TOPIC
from tests.spark.executor_kill import LONE, Kill
from tests.spark.killed_executors import ExecutorKills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_query_whose_worker_dies_fails_and_resumes_exactly_there(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    kills = ExecutorKills(running.name_server, spark, tmp_path)
    # The worst moment of a sink: everything is sent, and Spark does not know.
    assert not list(kills.judged(Kill(LONE, TOPIC, "after sending")))
    assert 0 < kills.twice <= ROWS_A_BATCH
