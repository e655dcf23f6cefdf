"""What the queries with killed executors do: a topic to files, to a topic, and as a batch to one.

Rows of a copy carry what shows their order: the tag says which task sent them, the key to which
queue they belong, the body when they were due.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrowmq.blocking import Message, Producer
from sparrowmq.protocol.message import MessageQueue
from tests.spark.admin import create_topic_at
from tests.spark.killed_query import copy_of, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES, TOPIC, BATCH = "files", "topic", "batch"
QUEUES = 2
ROWS_A_QUEUE = 15
ROWS_A_BATCH = 10
COPIED = ("body", "tags", "keys")
_KEYS = 3
_PADDING = bytes(20_000)
"""Large enough that the rows before a kill are more than what a worker's buffer holds back."""


def fill(name_server: str, topic: str) -> None:
    """All queues alike, and all keys in each."""
    create_topic_at(name_server, topic, QUEUES)

    def by_number(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[int(message.body[:6]) % QUEUES]

    with Producer("tests", name_servers=name_server) as producer:
        for number in range(QUEUES * ROWS_A_QUEUE):
            body = b"%06d" % number + _PADDING
            producer.send(Message(topic, body, keys=f"k{number % _KEYS}"), selector=by_number)


class Executed:
    """Queries over one topic; each has a folder for what it keeps, and a topic named after it."""

    def __init__(self, spark: SparkSession, name_server: str, topic: str) -> None:
        self._spark = spark
        self._server = {"nameServer": name_server}
        self._topic = topic

    def run(self, kind: str, folder: Path, source: str, more: Mapping[str, str]) -> None:
        """From where it is to the end; `source` is a format, `more` are options of it."""
        server = {**self._server, **more}
        to = {**server, "topic": copy_of(self._topic, folder)}
        given = {**server, "subscribe": self._topic}
        if kind == BATCH:
            rows = copied(self._spark.read.format(source).options(**given).load())
            writer = rows.write.format(source).options(**to).option("jobId", folder.name)
            writer.mode("append").save()
            return
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_A_BATCH)}
        reader = self._spark.readStream.format(source).options(**given).options(**limits)
        stream = reader.option("group", copy_of(self._topic, folder)).load()
        if kind == FILES:
            query = stream.writeStream.format("parquet").option("path", str(folder / "rows"))
        else:
            query = copied(stream).writeStream.format(source).options(**to)
        query = query.option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def result(self, kind: str, folder: Path) -> DataFrame:
        """What is there afterwards."""
        if kind == FILES:
            return self._spark.read.parquet(str(folder / "rows"))
        reader = self._spark.read.format("rocketmq").options(**self._server)
        return reader.option("subscribe", copy_of(self._topic, folder)).load()


def copied(frame: DataFrame) -> DataFrame:
    """What a copy is made of."""
    task = "concat('q', queueId) as tags"
    return frame.selectExpr("body", task, "keys", "keys[0] as shardingKey")


def rows_of(frame: DataFrame) -> Counter[str]:
    """All rows in all columns, and how often each is there; of bodies number and digest."""
    short = "concat(left(cast(body as string), 6), ' ', md5(body)) as body"
    others = [name for name in frame.columns if name != "body"]
    return counted(frame.selectExpr(short, *others))


def order_problems(found: DataFrame) -> Iterator[str]:
    """A key has one queue, and a task's rows of it lie there in order, repeated ones aside."""
    number = "cast(left(cast(body as string), 6) as int) as n"
    places = "queueId", "queueOffset", "tags", "keys[0] as key", number
    queues: dict[str, set[int]] = defaultdict(set)
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    rows: list[Any] = sorted(found.selectExpr(*places).collect())
    for row in rows:
        queues[row.key].add(row.queueId)
        seen = numbers[row.tags, row.key]
        if row.n not in seen:
            seen.append(row.n)
    for key, used in queues.items():
        if len(used) > 1:
            yield f"rows of key {key} are in queues {sorted(used)}"
    for place, seen in numbers.items():
        if seen != sorted(seen):
            yield f"rows of task and key {place} lie in the order {seen}"
