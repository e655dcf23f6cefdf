"""Metrics of streaming queries, from the progress that Spark reports."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace as Event
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.testing import Cluster
from tests.patience import PATIENCE_S
from tests.spark.topics import fill

pytest.importorskip("pyspark")

from prometheus_client import CollectorRegistry

from sparrowmq.spark.query_metrics import QueryMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress(rows: int, written: int) -> Event:
    told = Event(name="archive", id="q-1", numInputRows=rows, batchDuration=1500)
    told.sink = Event(numOutputRows=written)
    return Event(progress=told)


def test_rows_and_batches_of_a_query_add_up() -> None:
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    metrics.onQueryStarted(Event(id="q-1", name="archive"))
    metrics.onQueryProgress(progress(10, 10))
    metrics.onQueryProgress(progress(5, -1))
    metrics.onQueryIdle(Event())

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"sparrowmq_spark_{name}", {"query": "archive"})

    assert value("rows_read_total") == 15
    assert value("rows_written_total") == 10
    assert value("batches_total") == 2
    assert value("batch_seconds") == 1.5
    assert value("query_running") == 1
    metrics.onQueryTerminated(Event(id="q-1"))
    assert value("query_running") == 0


def test_a_query_without_a_name_is_known_by_its_id() -> None:
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    metrics.onQueryStarted(Event(id="q-2", name=None))
    running = "sparrowmq_spark_query_running"
    assert registry.get_sample_value(running, {"query": "q-2"}) == 1


class Terminated(QueryMetrics):
    """Also tells when the end of a query was reported: Spark reports it from a thread of its own,
    after everything else."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.ended = threading.Event()

    def onQueryTerminated(self, event: Any) -> None:
        super().onQueryTerminated(event)
        self.ended.set()


def test_a_real_query_is_measured(
    spark: SparkSession, running: Cluster, topic: str, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    metrics = Terminated(registry)
    bodies = fill(running, topic, 12)
    rows = (
        spark.readStream.format("rocketmq")
        .option("nameServer", running.name_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    spark.streams.addListener(metrics)
    try:
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName("measured")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert metrics.ended.wait(PATIENCE_S)
    finally:
        spark.streams.removeListener(metrics)

    def value(name: str) -> float:
        found = registry.get_sample_value(f"sparrowmq_spark_{name}", {"query": "measured"})
        assert found is not None, name
        return found

    assert value("rows_read_total") == len(bodies)
    assert value("batches_total") == 1
    assert value("batch_seconds") > 0
    assert value("query_running") == 0
