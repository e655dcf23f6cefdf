"""`spark.read.format("rocketmq")`: a topic is an ordinary table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from sparrowmq.blocking import Message
from sparrowmq.clock import system_clock
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.testing import Cluster
from tests.seeds import in_part
from tests.spark.admin import create_topic
from tests.spark.topics import fill, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def load(spark: SparkSession, running: Cluster, schema: str = "", **options: object) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    reader = spark.read.format("rocketmq").option("nameServer", running.name_server)
    if schema:
        reader = reader.schema(schema)
    return reader.options(**texts).load()


def bodies(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def test_every_message_is_a_row_with_all_its_columns(spark: SparkSession, running: Cluster) -> None:
    before_ms = system_clock()
    message = Message(
        "batch-columns",
        "grüß".encode(),
        tags="created",
        keys=["o-1", "o-2"],
        properties={"region": "eu"},
    )
    send(running, [message])
    (row,) = load(spark, running, subscribe="batch-columns").collect()
    assert (row.topic, row.brokerName, row.queueOffset) == ("batch-columns", "broker-a", 0)
    assert bytes(row.body) == "grüß".encode()
    assert (row.tags, row["keys"]) == ("created", ["o-1", "o-2"])
    assert row.properties["region"] == "eu"
    assert row.msgId == row.properties["UNIQ_KEY"]
    assert row.bornHost.startswith("127.0.0.1:")
    assert (row.reconsumeTimes, row.sysFlag) == (0, 0)
    stored_ms = row.storeTimestamp.replace(tzinfo=UTC).timestamp() * 1000
    assert before_ms <= stored_ms <= system_clock()


def test_counting_and_grouping_work_as_with_any_table(
    spark: SparkSession, running: Cluster
) -> None:
    fill(running, "batch-sql", 60)
    load(spark, running, subscribe="batch-sql").createOrReplaceTempView("batch_sql")
    rows = spark.sql("SELECT queueId, count(*) AS n FROM batch_sql GROUP BY queueId").collect()
    assert sum(row.n for row in rows) == 60
    assert len(rows) > 1


def test_several_topics_and_patterns_are_read_together(
    spark: SparkSession, running: Cluster
) -> None:
    first, second = fill(running, "batch-two-a", 5), fill(running, "batch-two-b", 5, first=5)
    both = load(spark, running, subscribe="batch-two-a,batch-two-b")
    assert bodies(both) == first + second
    assert bodies(load(spark, running, subscribePattern="batch-two-[b-z]")) == second


def test_offsets_select_the_range_to_read(spark: SparkSession, running: Cluster) -> None:
    create_topic(running, "batch-range", queues=1)
    sent = fill(running, "batch-range", 20)
    place = '{"batch-range": {"broker-a": {"0": %d}}}'
    part = load(
        spark,
        running,
        assign='{"batch-range": {"broker-a": [0]}}',
        startingOffsets=place % 5,
        endingOffsets=place % 15,
    )
    assert bodies(part) == sent[5:15]


def test_times_select_the_range_to_read(spark: SparkSession, running: Cluster) -> None:
    fill(running, "batch-times", 10)
    frame = load(spark, running, subscribe="batch-times")
    last = max(row.storeTimestamp for row in frame.collect()).replace(tzinfo=UTC)
    after_ms = int(last.timestamp() * 1000) + 1
    assert load(spark, running, subscribe="batch-times", startingTimestamp=after_ms).count() == 0
    assert load(spark, running, subscribe="batch-times", endingTimestamp=after_ms).count() == 10
    with RemoteCluster(running.name_server) as routes:
        queues = [queue.queue_id for queue in routes.queues("batch-times")]
    times = json.dumps({"batch-times": {"broker-a": {str(queue): 0 for queue in queues}}})
    assert (
        load(spark, running, subscribe="batch-times", startingOffsetsByTimestamp=times).count()
        == 10
    )


def test_large_queues_are_split_among_tasks(spark: SparkSession, running: Cluster) -> None:
    from pyspark.sql.functions import spark_partition_id

    create_topic(running, "batch-split", queues=1)
    sent = fill(running, "batch-split", 30)
    frame = load(spark, running, subscribe="batch-split", minPartitions=3)
    assert bodies(frame) == sent
    assert frame.select(spark_partition_id()).distinct().count() == 3


def test_chosen_columns_are_all_there_is(spark: SparkSession, running: Cluster) -> None:
    fill(running, "batch-few", 3)
    named = load(spark, running, subscribe="batch-few", columns="body,queueId")
    assert named.columns == ["body", "queueId"]
    assert sorted(bytes(row[0]) for row in named.collect()) == [b"000000", b"000001", b"000002"]
    chosen = load(spark, running, "body BINARY, topic STRING", subscribe="batch-few")
    assert [row.topic for row in chosen.collect()] == ["batch-few"] * 3


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, running: Cluster) -> None:
    create_topic(running, "batch-empty", queues=2)
    assert load(spark, running, subscribe="batch-empty").collect() == []


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "unknown option": ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
    "past the end": (
        {"endingOffsets": '{"batch-wrong": {"broker-a": {"0": 1, "1": 999}}}'},
        "batch-wrong queue 1 of broker-a ends at",
    ),
    "missing topic": ({"subscribe": "batch-nowhere"}, "topic batch-nowhere does not exist"),
    "latest": ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
    "missing queue": (
        {"startingOffsets": '{"batch-wrong": {"broker-a": {"0": 0}}}'},
        "queue 1 of broker-a is missing",
    ),
    "start past end": (
        {
            "startingOffsets": '{"batch-wrong": {"broker-a": {"0": 2, "1": 0}}}',
            "endingOffsets": '{"batch-wrong": {"broker-a": {"0": 1, "1": 0}}}',
        },
        "would start at 2, past its end 1",
    ),
    "unknown queue": (
        {"subscribe": None, "assign": '{"batch-wrong": {"broker-a": [9]}}'},
        "queue 9 of broker-a does not exist",
    ),
}
"""First what is found in the options, in the plan and by the brokers. The texts of the others are
tested without Spark in test_options and test_read_plan."""


@pytest.mark.parametrize("wrong", in_part(WRONG, 3))
def test_a_wrong_option_raises_sparks_own_error_with_the_reason(
    spark: SparkSession, running: Cluster, wrong: str
) -> None:
    from pyspark.errors import AnalysisException

    options, text = WRONG[wrong]
    create_topic(running, "batch-wrong", queues=2)
    fill(running, "batch-wrong", 4)
    given = {"subscribe": "batch-wrong", **options}
    with pytest.raises(AnalysisException) as caught:
        load(spark, running, **{name: text for name, text in given.items() if text}).collect()
    assert text in str(caught.value)


def test_a_schema_with_another_type_is_refused(spark: SparkSession, running: Cluster) -> None:
    from pyspark.errors import AnalysisException

    fill(running, "batch-schema", 1)
    with pytest.raises(
        AnalysisException, match="column body: is string in the schema, must be binary"
    ):
        load(spark, running, "body STRING", subscribe="batch-schema").collect()


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session with filters pushed down."""
    spark.conf.set(PUSH_DOWN, "true")
    yield spark
    spark.conf.unset(PUSH_DOWN)


def a_long_time_ago(row: Row) -> bool:
    return bool(row.storeTimestamp.year < 2000)


CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "queueId = 1": lambda row: row.queueId == 1,
    "queueId IN (0, 2) AND queueOffset >= 2": lambda row: row.queueId != 1 and row.queueOffset > 1,
    "queueOffset BETWEEN 1 AND 3": lambda row: 1 <= row.queueOffset <= 3,
    "tags IN ('paid', 'x') AND topic > 'a'": lambda row: row.tags == "paid",
    "keys = array('k5')": lambda row: row["keys"] == ["k5"],
    "storeTimestamp < timestamp'2000-01-01'": a_long_time_ago,
    "storeTimestamp >= timestamp'2000-01-01' AND tags IS NULL": lambda row: row.tags is None,
    "body = X'35' OR queueId = 0": lambda row: bytes(row.body) == b"5" or row.queueId == 0,
}


def test_pushed_filters_give_the_rows_that_spark_itself_would_choose(
    pushing: SparkSession, running: Cluster
) -> None:
    create_topic(running, "batch-push", queues=3)
    tags = ["paid", "created", None]
    send(
        running,
        [Message("batch-push", b"%d" % n, tags=tags[n % 3], keys=f"k{n}") for n in range(24)],
    )
    everything = load(pushing, running, subscribe="batch-push").collect()
    for condition, is_wanted in CONDITIONS.items():
        frame = load(pushing, running, subscribe="batch-push", pushDown=True)
        wanted = sorted(bytes(row.body) for row in everything if is_wanted(row))
        assert bodies(frame.where(condition)) == wanted, condition


def test_pushed_filters_keep_messages_at_the_broker(
    pushing: SparkSession, running: Cluster
) -> None:
    create_topic(running, "batch-less", queues=4)
    frame = load(pushing, running, subscribe="batch-less", pushDown=True)
    fill(running, "batch-less", 40)
    filtered = frame.where("queueId = 2 AND queueOffset < 5")
    assert filtered.rdd.getNumPartitions() == 1


def test_filters_are_not_pushed_by_default_because_spark_would_keep_them(
    pushing: SparkSession, running: Cluster
) -> None:
    fill(running, "batch-kept", 8)
    frame = load(pushing, running, subscribe="batch-kept")
    assert frame.where("queueOffset < 1").count() < 8
    assert frame.count() == 8
