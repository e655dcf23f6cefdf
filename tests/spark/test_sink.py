"""`df.write.format("rocketmq")`: rows become messages, and a repeated write can be recognised."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.spark.frames import deduplicated
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.testing import Cluster
from tests.seeds import in_part
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def create(running: Cluster, *topics: str) -> None:
    async def work() -> None:
        async with Admin(running.name_server) as admin:
            for topic in topics:
                await admin.create_topic(topic, queues=4)

    asyncio.run(work())


def read(spark: SparkSession, running: Cluster, topic: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", running.name_server)
    return reader.option("subscribe", topic).load()


def read_stream(spark: SparkSession, running: Cluster, topic: str) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", running.name_server)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def write(frame: DataFrame, running: Cluster, **options: Any) -> None:
    texts = {name: str(value) for name, value in options.items()}
    writer = frame.write.format("rocketmq").option("nameServer", running.name_server)
    writer.options(**texts).mode("append").save()


def run_stream(frame: DataFrame, running: Cluster, topic: str, checkpoint: Path) -> str:
    """Write all there is as one or more micro-batches; the query's id."""
    writer = frame.writeStream.format("rocketmq").option("nameServer", running.name_server)
    query = (
        writer.option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .queryName(f"to {topic}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return str(query.id)


def test_every_column_of_a_row_arrives(spark: SparkSession, running: Cluster) -> None:
    create(running, "sink-columns")
    frame = spark.sql("""
        select 'hello' as body, 'sink-columns' as topic, 'paid' as tags,
               array('o-1', 'c-7') as keys, map('shop', '7') as properties, 'c-7' as shardingKey
    """)
    write(frame, running)
    [row] = read(spark, running, "sink-columns").collect()
    assert bytes(row.body) == b"hello"
    assert (row.tags, row["keys"]) == ("paid", ["o-1", "c-7"])
    assert row.properties["shop"] == "7"
    assert row.properties["__SHARDINGKEY"] == "c-7"
    assert row.msgId == row.properties["UNIQ_KEY"]


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, running: Cluster) -> None:
    sent = fill(running, "sink-from", 30)
    create(running, "sink-to")
    write(read(spark, running, "sink-from"), running, topic="sink-to")
    copied = read(spark, running, "sink-to").collect()
    assert sorted(bytes(row.body) for row in copied) == sent
    assert {row["keys"][0] for row in copied} == {f"k{body.decode()}" for body in sent}


def test_a_write_that_is_repeated_under_its_job_id_can_be_deduplicated(
    spark: SparkSession, running: Cluster
) -> None:
    create(running, "sink-job")
    frame = spark.range(40).selectExpr("cast(id % 5 as string) as body")
    for _ in range(2):
        write(frame, running, topic="sink-job", jobId="2026-11-15")
    stored = read(spark, running, "sink-job")
    assert stored.count() == 80
    assert deduplicated(stored).count() == 40
    write(frame, running, topic="sink-job")
    assert deduplicated(read(spark, running, "sink-job")).count() == 80


@pytest.mark.slow
def test_a_micro_batch_that_is_repeated_after_a_crash_keeps_its_ids(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill(running, "sink-in", 50)
    create(running, "sink-out")
    stream = read_stream(spark, running, "sink-in")
    query = run_stream(stream, running, "sink-out", tmp_path / "checkpoint")
    # A driver that dies between the last send and Spark's commit leaves a checkpoint without it.
    (commit,) = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    commit.unlink()
    (tmp_path / "checkpoint" / "commits" / f".{commit.name}.crc").unlink(missing_ok=True)
    assert run_stream(stream, running, "sink-out", tmp_path / "checkpoint") == query
    stored = read(spark, running, "sink-out")
    assert stored.count() == 100
    assert deduplicated(stored).count() == 50
    assert sorted(r.body for r in deduplicated(stored).select("body").collect()) == sorted(
        r.body for r in read(spark, running, "sink-in").select("body").collect()
    )


@pytest.mark.slow
def test_a_stream_is_deduplicated_too(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    create(running, "sink-twice")
    frame = spark.range(25).selectExpr("cast(id as string) as body")
    for _ in range(2):
        write(frame, running, topic="sink-twice", jobId="j")
    stream = deduplicated(read_stream(spark, running, "sink-twice"), within="10 minutes")
    query = (
        stream.writeStream.format("memory")
        .queryName("sink_deduplicated")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.table("sink_deduplicated").count() == 25


@pytest.fixture(scope="module")
def untouched(running: Cluster) -> None:
    """The topic that bad input never reaches."""
    create(running, "sink-bad")


BAD_INPUT: tuple[tuple[str, dict[str, str], str], ...] = (
    ("'a' as body", {"topic": "sink-bad", "tpoic": "x"}, "option tpoic: unknown to the sink"),
    ("id", {"topic": "sink-bad"}, "column id: unknown to the sink, allowed are body, topic"),
    ("string(null) as body", {"topic": "sink-bad"}, "column body: is null in [123] rows?"),
    ("id as body", {"topic": "sink-bad"}, "column body: has type bigint, allowed is binary"),
    ("'a' as tags", {"topic": "sink-bad"}, "column body: missing; the sink needs it"),
    ("'a' as body", {}, "option topic: missing; give it, or a column topic"),
    ("'a' as body", {"topic": "sink-nowhere"}, "topic sink-nowhere does not exist"),
    ("'a' as body, 'sink-none' as topic", {}, "topic sink-none does not exist"),
    ("'a' as body, -1 as delayLevel", {"topic": "sink-bad"}, "column delayLevel: is -1"),
)
"""First what is refused at each place: the options, the columns, a row in a task. The texts of the
others are tested without Spark in test_sink_columns, test_sink_rows and test_sink_sending."""


@pytest.mark.parametrize("bad", in_part(BAD_INPUT, 3), ids=lambda bad: bad[2])
def test_bad_input_is_refused_by_name_and_nothing_is_sent(
    spark: SparkSession, running: Cluster, untouched: None, bad: tuple[str, dict[str, str], str]
) -> None:
    from pyspark.errors import PySparkException

    columns, options, text = bad
    with pytest.raises(PySparkException, match=text):
        write(spark.range(3).selectExpr(*columns.split(", ")), running, **options)
    with RemoteCluster(running.name_server) as brokers:
        assert {brokers.max_offset(queue) for queue in brokers.queues("sink-bad")} == {0}


@pytest.mark.slow
def test_a_topic_is_created_before_the_first_row_when_that_is_wanted(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as body")
    write(frame, running, topic="sink-made", createTopic="true", createTopicQueues="3")
    assert read(spark, running, "sink-made").count() == 3
    writer = read_stream(spark, running, "sink-made").writeStream.format("rocketmq")
    query = (
        writer.option("nameServer", running.name_server)
        .option("topic", "sink-streamed")
        .option("createTopic", "true")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with RemoteCluster(running.name_server) as brokers:
        assert len(brokers.queues("sink-made")) == 3
        assert len(brokers.queues("sink-streamed")) == 8
    assert read(spark, running, "sink-streamed").count() == 3


def test_a_topic_cannot_be_overwritten(
    spark: SparkSession, running: Cluster, untouched: None
) -> None:
    from pyspark.errors import PySparkException

    writer = spark.range(1).selectExpr("'a' as body").write.format("rocketmq")
    writer = writer.option("nameServer", running.name_server).option("topic", "sink-bad")
    with pytest.raises(PySparkException, match="cannot be overwritten, only appended to"):
        writer.mode("overwrite").save()


def test_a_refused_send_fails_the_task_with_the_brokers_reason(
    spark: SparkSession, running: Cluster, untouched: None
) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(1).selectExpr("repeat('x', 5 * 1024 * 1024) as body")
    text = r"sending 1 rows to sink-bad queue \d of broker-a at .* was refused with code 13: "
    with pytest.raises(PySparkException, match=text):
        write(frame, running, topic="sink-bad", maxMessageBytes="8MiB")


def test_a_failed_write_reports_that_it_is_unknown_what_was_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark hands over what tasks reported before the failure; the others may still send."""
    from sparrowmq.spark.sink import BatchWriter, TaskSent
    from sparrowmq.spark.sink_options import parse_sink_options

    writer = BatchWriter(parse_sink_options({"nameServer": "127.0.0.1:9876"}), {"body": 0})
    writer.abort([TaskSent(150, 3000), None])
    said = "the write failed: at least 150 rows (3000 bytes) were sent, by 1 of 2 tasks; the other"
    assert said in caplog.text
