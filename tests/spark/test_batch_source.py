"""`spark.read.format("rocketmq")`: a topic is an ordinary table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.testing import Cluster
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, running: Cluster, **options: object) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    return (
        spark.read.format("rocketmq").option("nameServer", running.name_server).options(**texts)
    ).load()


def bodies(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def test_every_message_of_a_topic_is_a_row(spark: SparkSession, running: Cluster) -> None:
    sent = fill(running, "batch-all", 50)
    frame = load(spark, running, subscribe="batch-all")
    assert bodies(frame) == sent
    assert frame.count() == 50
