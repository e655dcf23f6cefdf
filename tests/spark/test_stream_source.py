"""`spark.readStream.format("rocketmq")` in real queries: restarts, outages, kills, progress."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.spark.offsets import from_json
from sparrowmq.spark.routes import Cluster as Routes
from sparrowmq.testing import Cluster, cluster
from tests.spark.admin import create_topic
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KILLED = -9


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


def test_available_now_reads_everything_in_limited_batches_and_tells_the_lag(
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
    with Routes(running.name_server) as routes:
        group = {
            queue: routes.consumer_offset("stream-now-group", queue)
            for queue in routes.queues("stream-now")
        }
        assert group == {queue: routes.max_offset(queue) for queue in group}


def test_a_restarted_query_goes_on_exactly_where_it_was(
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


def test_an_outage_is_survived_or_ends_the_query_and_nothing_is_lost_either_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    with cluster() as own:
        create_topic(own, "orders", queues=2)
        sent = fill(own, "orders", 10)
        seen = Collected()
        query = seen.start(stream(spark, own, "orders", retryTimeout="300s"), tmp_path)
        query.processAllAvailable()
        assert seen.bodies == sent
        own.stop_broker("broker-a")
        own.start_broker("broker-a")
        sent += fill(own, "orders", 10, first=10)
        query.processAllAvailable()
        assert seen.bodies == sent
        query.stop()

        query = seen.start(stream(spark, own, "orders", retryTimeout="1s"), tmp_path)
        own.stop_broker("broker-a")
        with pytest.raises(StreamingQueryException, match=r"given up after .*retryTimeout 1s"):
            query.processAllAvailable()
        own.start_broker("broker-a")
        sent += fill(own, "orders", 10, first=20)
        query = seen.start(
            stream(spark, own, "orders", retryTimeout="300s"), tmp_path, availableNow=True
        )
        assert query.awaitTermination(300)
        assert seen.bodies == sent


def test_a_wrong_option_is_said_before_the_query_starts(
    spark: SparkSession, running: Cluster
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="did you mean maxOffsetsPerTrigger"):
        stream(spark, running, "stream-wrong", maxOffsetPerTrigger=5)


def run_and_kill(running: Cluster, folder: Path, when: str) -> int:
    """A driver of its own that kills itself; its exit code."""
    command = [sys.executable, "-m", "tests.spark.killed_query", running.name_server, str(folder)]
    ended = subprocess.run(
        [*command, when], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, KILLED), ended.stderr[-4000:]
    return ended.returncode


def test_a_killed_driver_never_leaves_progress_beyond_its_last_committed_batch(
    running: Cluster, tmp_path: Path
) -> None:
    topic = "killed"
    sent = fill(running, topic, 30)
    # after the worst moment: the batch is written, and nobody has been told
    assert run_and_kill(running, tmp_path, "after-write") == KILLED
    # batch 0 is committed, batch 1 is not: the group stands exactly between them
    offsets = tmp_path / "checkpoint" / "offsets"
    assert sorted(path.name for path in offsets.glob("[0-9]*")) == ["0", "1"]
    assert [path.name for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")] == ["0"]
    between = from_json(json.loads((offsets / "0").read_text().splitlines()[-1]))
    with Routes(running.name_server) as routes:
        group = {queue: routes.consumer_offset("killed", queue) for queue in routes.queues(topic)}
    assert group == between
    assert run_and_kill(running, tmp_path, "never") == 0
    rows = [
        line for path in sorted((tmp_path / "rows").iterdir()) for line in path.read_bytes().split()
    ]
    assert sorted(rows) == sent
