"""Metrics of streaming queries, from the progress that Spark reports."""

from types import SimpleNamespace as Event

import pytest

pytest.importorskip("pyspark")

from prometheus_client import CollectorRegistry

from sparrowmq.spark.query_metrics import QueryMetrics


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
