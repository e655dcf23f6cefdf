"""A broker that goes away under a running query, and comes back or does not.

The same without Spark, and in every run: test_puller, test_patience, test_stream_losses and
test_sink_sending.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.frames import deduplicated
from sparrowmq.testing import Cluster, cluster
from tests.spark.jobs.backlog import bodies, fill_topic, table
from tests.spark.other_broker import NAME, Gate, OtherBroker
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow  # brokers and queries start again and again, and one waits a second

DEADLINE_S = 300
OPTION = r"\(option retryTimeout 1s\)"
ENDS = (signal.SIGTERM, signal.SIGKILL)


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A name server that never knows a broker which the other tests would miss."""
    with cluster() as started:
        yield started


@pytest.fixture
def other(own: Cluster, tmp_path: Path) -> Iterator[OtherBroker]:
    with OtherBroker(own.name_server, tmp_path) as started:
        yield started


@pytest.fixture(autouse=True)
def row_by_row(spark: SparkSession) -> Iterator[None]:
    """Spark would gather thousands of rows before it hands the first one to Python."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "1")
    yield
    spark.conf.unset(name)


def reading(spark: SparkSession, name_server: str, topic: str, **options: str) -> DataFrame:
    given = {"nameServer": name_server, "subscribe": topic, **options}
    reader = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    return reader.options(**given).load()


def ended(query: StreamingQuery) -> bool:
    return bool(query.awaitTermination(DEADLINE_S))


def test_a_sink_query_resumes_when_its_broker_returns_and_fails_if_it_does_not(
    spark: SparkSession, running: Cluster, own: Cluster, other: OtherBroker, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    sent = fill_topic(running, "outage-in", 20, queues=1)
    other.create_topic("outage-out", queues=2)

    def start(gate: Gate | None, retry_timeout: str) -> StreamingQuery:
        frame = reading(spark, running.name_server, "outage-in", maxOffsetsPerTrigger="10")
        frame = frame if gate is None else gate.through(frame)
        writer = frame.writeStream.format("rocketmq").option("nameServer", own.name_server)
        writer = writer.option("topic", "outage-out").option("retryTimeout", retry_timeout)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with Gate({b"000005", b"000015"}) as gate:
        query = start(gate, "600s")
        for how in ENDS:
            gate.reached()
            other.end(how)
            gate.open()
            other.start()
        assert ended(query)
    assert bodies(deduplicated(table(spark, own, "outage-out"))) == sent

    sent += fill_topic(running, "outage-in", 10, first=20)
    with Gate({b"000025"}) as gate:
        query = start(gate, "1s")
        gate.reached()
        other.end(signal.SIGTERM)
        gate.open()
        with pytest.raises(StreamingQueryException) as failed:
            ended(query)
    # Who has sent nothing yet does not know which broker it is that has the topic.
    text = rf"(sending \d+ rows to outage-out queue \d of {NAME}|route of topic outage-out)"
    assert re.search(rf"{text}: given up after \d+\.\d s {OPTION}", str(failed.value))
    other.start()
    assert ended(start(None, "600s"))
    assert bodies(deduplicated(table(spark, own, "outage-out"))) == sent


def test_a_source_query_resumes_when_its_broker_returns_and_fails_if_it_does_not(
    spark: SparkSession, own: Cluster, other: OtherBroker, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    other.create_topic("outage-from", queues=1)
    sent = fill(own, "outage-from", 50)
    batches: dict[int, list[bytes]] = {}

    def take(frame: DataFrame, batch_id: int) -> None:
        batches[batch_id] = [bytes(row.body) for row in frame.select("body").collect()]

    def start(gate: Gate | None, retry_timeout: str) -> StreamingQuery:
        options = {"maxOffsetsPerTrigger": "10", "retryTimeout": retry_timeout}
        frame = reading(spark, own.name_server, "outage-from", **options)
        frame = frame if gate is None else gate.through(frame)
        writer = frame.writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with Gate({b"000005", b"000015", b"000025"}) as gate:
        query = start(gate, "600s")
        for how in ENDS:
            gate.reached()
            other.end(how)
            gate.open()
            other.start()
        gate.reached()
        query.stop()
    assert [row for batch in batches.values() for row in batch] == sent[:20]

    with Gate({b"000025"}) as gate:
        query = start(gate, "1s")
        gate.reached()
        other.end(signal.SIGTERM)
        gate.open()
        with pytest.raises(StreamingQueryException) as failed:
            ended(query)
    text = str(failed.value)
    assert re.search(rf"given up after \d+\.\d s {OPTION}", text)
    assert re.search(rf"{NAME}, which serves topic outage-from|outage-from queue 0 of {NAME}", text)
    other.start()
    assert ended(start(None, "600s"))
    assert [row for batch in batches.values() for row in batch] == sent
