"""Metrics of streaming queries, from the progress that Spark reports after each micro-batch.

    spark.streams.addListener(QueryMetrics())

Nothing is measured per row: Spark counts rows anyway. A query's lag is that of its group at the
brokers, `rocketmq_consumer_lag_messages`, because streams commit their progress there.
Needs `sparrowmq[prometheus]`; the program serves the registry, as it does its other metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_NEEDED = "QueryMetrics needs prometheus-client: pip install 'sparrowmq[prometheus]'"


class QueryMetrics(StreamingQueryListener):
    """Rows, batches and times of every query of a session, by its name, or by its id if unnamed."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Uses the default registry unless one is given. Raises ImportError if prometheus-client is
        not installed."""
        try:
            from prometheus_client import REGISTRY, Counter, Gauge
        except ImportError as error:
            raise ImportError(_NEEDED) from error
        used = REGISTRY if registry is None else registry
        query = ("query",)
        self._names: dict[str, str] = {}
        self._read = Counter(
            "sparrowmq_spark_rows_read", "Rows that a query has read.", query, registry=used
        )
        self._written = Counter(
            "sparrowmq_spark_rows_written",
            "Rows that a query has written, where its sink counts them.",
            query,
            registry=used,
        )
        self._batches = Counter(
            "sparrowmq_spark_batches", "Micro-batches that have ended.", query, registry=used
        )
        self._duration = Gauge(
            "sparrowmq_spark_batch_seconds", "How long the last one took.", query, registry=used
        )
        self._running = Gauge(
            "sparrowmq_spark_query_running", "1 while the query runs.", query, registry=used
        )

    def onQueryStarted(self, event: Any) -> None:  # Spark's names
        """A query was started."""
        name = self._names[str(event.id)] = event.name or str(event.id)
        self._running.labels(name).set(1)

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch has ended."""
        progress = event.progress
        name = progress.name or str(progress.id)
        self._read.labels(name).inc(max(0, progress.numInputRows))
        self._written.labels(name).inc(max(0, progress.sink.numOutputRows))  # -1: not counted
        self._batches.labels(name).inc()
        self._duration.labels(name).set(progress.batchDuration / 1000)

    def onQueryIdle(self, event: Any) -> None:
        """A query waits for messages."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended, normally or with an error."""
        name = self._names.pop(str(event.id), str(event.id))
        self._running.labels(name).set(0)
