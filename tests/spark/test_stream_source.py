"""`spark.readStream.format("rocketmq")` in real queries: restarts and progress.

Outages are in `test_query_outage`, kills in `test_killed_queries`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.testing import Cluster
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def stream(spark: SparkSession, running: Cluster, topic: str, **options: object) -> DataFrame:
    base = {
        "nameServer": running.name_server,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **{name: str(value) for name, value in options.items()},
    }
    return spark.readStream.format("rocketmq").options(**base).load()


class Collected:
    """A query whose rows end up in a Python list, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    @property
    def bodies(self) -> list[bytes]:
        return sorted(body for batch in self.batches.values() for body in batch)

    def take(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [bytes(row.body) for row in frame.select("body").collect()]

    def start(self, frame: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(self.take)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()


@pytest.mark.slow
def test_available_now_reads_everything_in_limited_batches_and_reports_the_lag(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = fill(running, "stream-now", 25)
    frame = stream(spark, running, "stream-now", maxOffsetsPerTrigger=10, group="stream-now-group")
    seen = Collected()
    query = seen.start(frame, tmp_path, availableNow=True)
    assert query.awaitTermination(300)
    assert seen.bodies == sent
    assert [len(batch) for batch in seen.batches.values()] == [10, 10, 5]
    lags = [
        progress["sources"][0]["latestOffset"]["$lag"]
        for progress in (json.loads(found.json) for found in query.recentProgress)
        if progress["numInputRows"]
    ]
    assert lags == [15, 5, 0]
    with RemoteCluster(running.name_server) as routes:
        group = {
            queue: routes.consumer_offset("stream-now-group", queue)
            for queue in routes.queues("stream-now")
        }
        assert group == {queue: routes.max_offset(queue) for queue in group}


def test_a_restarted_query_resumes_exactly_where_it_stopped(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    seen = Collected()
    first = fill(running, "stream-again", 20)
    frame = stream(spark, running, "stream-again")
    assert seen.start(frame, tmp_path, availableNow=True).awaitTermination(300)
    more = fill(running, "stream-again", 20, first=20)
    frame = stream(spark, running, "stream-again")
    assert seen.start(frame, tmp_path, availableNow=True).awaitTermination(300)
    assert list(seen.batches.values())[1:] != []
    assert seen.batches[0] != seen.batches[1]
    assert seen.bodies == first + more


def test_a_wrong_option_is_reported_before_the_query_starts(
    spark: SparkSession, running: Cluster
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="did you mean maxOffsetsPerTrigger"):
        stream(spark, running, "stream-wrong", maxOffsetPerTrigger=5)


@pytest.mark.slow
def test_an_option_that_streams_do_not_have_is_reported_when_the_query_starts(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    """Spark 4.3 loses what a data source raises while it makes the reader of a stream."""
    from pyspark.errors import StreamingQueryException

    fill(running, "stream-end", 1)
    query = Collected().start(
        stream(spark, running, "stream-end", endingOffsets="latest"), tmp_path
    )
    with pytest.raises(StreamingQueryException, match="endingOffsets: a stream has no end"):
        query.awaitTermination(300)
