"""Topics with a backlog and their messages, for the tests of the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.blocking import Message, Producer
from sparrowmq.spark.group_progress import GroupProgress
from sparrowmq.spark.wire.cluster import QueuePosition, RemoteCluster
from sparrowmq.testing import Cluster
from tests.spark.admin import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fill_topic(
    running: Cluster, topic: str, count: int, *, queues: int = 2, first: int = 0, keys: int = 7
) -> list[bytes]:
    """A topic with `count` messages, ten by ten in its queues; their bodies. Keys by turns."""
    if first == 0:
        create_topic(running, topic, queues)
    messages = [
        Message(topic, b"%06d" % number, keys=f"k{number % keys}", tags=f"t{number % 2}")
        for number in range(first, first + count)
    ]
    with Producer("tests", name_servers=running.name_server) as producer:
        for start in range(0, count, 10):
            producer.send_batch(messages[start : start + 10])
    return [message.body for message in messages]


def put_group(running: Cluster, group: str, topic: str, offset: int = 0) -> None:
    """A group that has handled so many messages of every queue, and has no members."""
    with RemoteCluster(running.name_server) as wire:
        GroupProgress(wire, group).commit(dict.fromkeys(wire.queues(topic), QueuePosition(offset)))


def offsets_of(running: Cluster, group: str, topic: str) -> list[int | None]:
    """Where a group is, queue by queue."""
    with RemoteCluster(running.name_server) as wire:
        return [wire.consumer_offset(group, queue) for queue in wire.queues(topic)]


def sizes(running: Cluster, topic: str) -> list[int]:
    """Messages in each queue."""
    with RemoteCluster(running.name_server) as wire:
        return [wire.max_offset(queue) for queue in wire.queues(topic)]


def topics(running: Cluster) -> list[str]:
    """All topics there are."""
    with RemoteCluster(running.name_server) as wire:
        return wire.topics()


def table(spark: SparkSession, running: Cluster, topic: str) -> DataFrame:
    """A topic as it is now."""
    reader = spark.read.format("rocketmq").option("nameServer", running.name_server)
    return reader.option("subscribe", topic).load()


def bodies(frame: DataFrame) -> list[bytes]:
    """All bodies, sorted."""
    return sorted(bytes(row.body) for row in frame.select("body").collect())
