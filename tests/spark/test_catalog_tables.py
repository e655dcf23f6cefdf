"""Tables of Spark's catalog: what CREATE TABLE was given counts when the table is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.errors import PySparkException

from sparrowmq.spark.catalog_tables import given_to_create, read_with, with_options
from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.schema import chosen_columns, struct_type
from sparrowmq.spark.source import register
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.testing import Cluster

NOWHERE = "127.0.0.1:1"
WAYS = ("subscribe", "assign")
NAMED = ("nameServer",)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"subscribe": "a"}, None),
        ({"provider": "rocketmq", "owner": "me", "subscribe": "a"}, {}),
        (
            {"provider": "rocketmq", "option.subscribe": "a", "subscribe": "b", "owner": "me"},
            {"subscribe": "a"},
        ),
        (
            {"Provider": "rocketmq-log", "option.topic": "a", "path": "file:/data"},
            {"topic": "a", "path": "file:/data"},
        ),
    ],
    ids=["a read", "a table without options", "a table", "a table of files"],
)
def test_the_options_of_a_table_are_separated_from_its_properties(
    options: dict[str, str], given: dict[str, str] | None
) -> None:
    assert given_to_create(options) == given


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, {"nameserver": "a:1", "subscribe": "x"}),
        (
            {"nameServer": "b:2", "tags": "t"},
            {"nameserver": "b:2", "subscribe": "x", "tags": "t"},
        ),
        (
            {"nameServer": "b:2", "subscribe": "y"},
            {"nameServer": "b:2", "subscribe": "y"},
        ),
    ],
    ids=["none", "more", "columns given to another read"],
)
def test_options_given_to_the_read_come_before_those_of_the_table(
    options: dict[str, str], counts: dict[str, str]
) -> None:
    columns = with_options(struct_type(), {"nameserver": "a:1", "subscribe": "x"})
    assert chosen_columns(columns) == chosen_columns(struct_type())
    assert read_with(columns, options, WAYS, NAMED) == counts
    assert read_with(struct_type(), options, WAYS, NAMED) == options


def test_other_topics_of_a_table_are_refused_unless_the_read_names_their_cluster() -> None:
    """Spark shows no difference between a read of the table and another read with its columns."""
    columns = with_options(struct_type(), {"nameserver": "a:1", "subscribe": "x"})
    with pytest.raises(OptionError, match="option assign: the table reads x; for other topics"):
        read_with(columns, {"assign": "{}", "tags": "t"}, WAYS, NAMED)
    other = {"subscribe": "y"}
    assert read_with(struct_type(), other, WAYS, NAMED) == other


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """The name of a table that is dropped in the end."""
    yield "orders_table"
    spark.sql("DROP TABLE IF EXISTS orders_table")


def create(spark: SparkSession, table: str, running: Cluster, topic: str, columns: str = "") -> str:
    options = f"OPTIONS (nameServer '{running.name_server}', subscribe '{topic}')"
    spark.sql(f"CREATE TABLE {table} {columns} USING rocketmq {options}")
    return table


def bodies(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in frame.select("body").collect())


def test_a_table_is_read_with_the_options_that_it_was_created_with(
    spark: SparkSession, running: Cluster, topic: str, table: str
) -> None:
    sent = fill(running, topic, 3)
    create(spark, table, running, topic)
    assert bodies(spark.table(table)) == sent
    keys = spark.sql(f"SELECT keys[0] AS key FROM {table} WHERE body = X'303030303031'").collect()
    assert [row["key"] for row in keys] == ["k000001"]
    assert bodies(spark.read.option("startingOffsets", "earliest").table(table)) == sent
    with pytest.raises(PySparkException, match=f"option subscribe: the table reads {topic}; "):
        spark.read.option("subscribe", "other").table(table).collect()
    # Columns that were read from a table may be given to another read.
    other = spark.read.format("rocketmq").schema(spark.table(table).schema)
    found = other.option("nameServer", running.name_server).option("subscribe", topic).load()
    assert bodies(found) == sent


def test_a_table_is_read_as_a_stream(
    spark: SparkSession, running: Cluster, topic: str, table: str, tmp_path: Path
) -> None:
    sent = fill(running, topic, 3)
    create(spark, table, running, topic)
    frame = spark.readStream.option("startingOffsets", "earliest").table(table)
    out = str(tmp_path / "out")
    writer = frame.select("body").writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(out).awaitTermination()
    assert bodies(spark.read.parquet(out)) == sent


@pytest.mark.parametrize(
    ("option", "said"),
    [("subscribe 'a b'", "option subscribe"), ("subscrbe 'a'", "did you mean subscribe")],
)
def test_a_wrong_option_of_a_table_is_reported_when_it_is_created(
    spark: SparkSession, table: str, option: str, said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.sql(f"CREATE TABLE {table} USING rocketmq OPTIONS ({option})")
    assert not spark.catalog.tableExists(table)


def test_reading_a_table_with_its_own_columns_is_refused_with_the_remedy(
    spark: SparkSession, running: Cluster, table: str
) -> None:
    """Spark makes it without asking the source, and keeps its options to itself."""
    create(spark, table, running, "orders", "(body binary)")
    with pytest.raises(PySparkException, match="created without columns: DROP TABLE"):
        spark.table(table).collect()


@pytest.mark.parametrize("columns", ["", "(body binary, topic string)"], ids=["none", "its own"])
@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO {} (body, topic) VALUES (X'61', 'orders')",
        "INSERT INTO {} (body, topic) SELECT body, topic FROM inserted",
    ],
    ids=["values", "rows"],
)
def test_inserts_into_a_table_are_refused_because_spark_does_not_pass_its_options(
    spark: SparkSession, running: Cluster, table: str, columns: str, insert: str
) -> None:
    """The rows would go to the cluster of the environment, whatever the table says."""
    create(spark, table, running, "orders", columns)
    rows = spark.createDataFrame([(b"a", "orders")], "body binary, topic string")
    rows.createOrReplaceTempView("inserted")
    with pytest.raises(PySparkException, match=r"If this is a table: .* use df\.write"):
        spark.sql(insert.format(table))


def test_log_files_are_a_table(
    spark: SparkSession, running: Cluster, topic: str, table: str
) -> None:
    sent = fill(running, topic, 3)
    (store,) = (Path(running.data_dir) / name for name in running.broker_addresses)
    options = f"OPTIONS (path '{store}', topic '{topic}')"
    spark.sql(f"CREATE TABLE {table} USING `rocketmq-log` {options}")
    assert bodies(spark.table(table)) == sent


def test_a_program_registers_the_formats_with_the_name_servers_that_it_knows_by_now(
    spark: SparkSession, running: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment in which Java was started is all that Spark's planning sees by itself."""
    sent = fill(running, topic, 3)
    session = spark.newSession()
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
    register(session)
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", NOWHERE)
    assert bodies(session.read.format("rocketmq").option("subscribe", topic).load()) == sent
    rows = session.createDataFrame([(b"registered",)], "body binary")
    rows.write.format("rocketmq").option("topic", topic).mode("append").save()
    register(session, NOWHERE)
    reader = session.read.format("rocketmq").option("nameServer", running.name_server)
    assert bodies(reader.option("subscribe", topic).load()) == [*sent, b"registered"]
    with pytest.raises(ValueError, match="the argument name_servers"):
        register(session, "")
