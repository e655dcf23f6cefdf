"""A query from a topic to files or to another topic, and a driver that is killed in its second
batch.

`python -m tests.spark.killed_query NAME-SERVER files|topic TOPIC FOLDER POINT`

A restart in a process that is not killed completes the rest with the same functions.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrowmq.spark.frames import deduplicated
from sparrowmq.spark.offsets import Offsets, from_json
from sparrowmq.spark.session import spark_session
from sparrowmq.spark.wire.cluster import Queue, RemoteCluster
from tests.spark.dying_driver import die_before, processes_of
from tests.spark.standalone import QUICK_JAVA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 30
ROWS_A_BATCH = 10
ROWS = "rows"
FILES = {
    "before the plan": "offsets/1",
    "written": "_spark_metadata/1",
    "committed": "commits/1",
    "checkpointed": "offsets/2",
}
"""Which file of its second batch, or third, is not written any more."""
POINTS = {
    "files": ("before the plan", ROWS, "written", "committed", "checkpointed"),
    "topic": ("before the plan", ROWS, "committed", "checkpointed"),
}
"""A topic has no commit: a row that was sent stays sent."""
COPIED = ("body", "tags", "keys")

Through = Callable[["DataFrame"], "DataFrame"]


def unchanged(frame: DataFrame) -> DataFrame:
    """The path of the rows where nothing is killed."""
    return frame


def copy_of(topic: str, folder: Path) -> str:
    """The output topic of a query; each folder has its own topic."""
    return f"{topic}-{folder.name}"


def run_query(
    spark: SparkSession,
    name_server: str,
    kind: str,
    topic: str,
    folder: Path,
    through: Through = unchanged,
) -> None:
    """From where the checkpoint is to the end of the topic, ten messages a batch."""
    options = {
        "nameServer": name_server,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS_A_BATCH),
        "group": copy_of(topic, folder),
    }
    frame = through(spark.readStream.format("rocketmq").options(**options).load())
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if kind == "files":
        writer = writer.format("parquet").option("path", str(folder / "rows"))
    else:
        writer = writer.format("rocketmq").option("nameServer", name_server)
        writer = writer.option("topic", copy_of(topic, folder))
    writer.trigger(availableNow=True).start().awaitTermination()


def killing(pids: list[int]) -> Through:
    """Kill the driver in a task of the second batch, in the middle of its rows."""

    def watch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        is_second = context is not None and context.getLocalProperty(BATCH_ID) == "1"
        for batch in batches:
            if is_second and batch.num_rows > 1:
                yield batch.slice(0, batch.num_rows // 2)
                # Java last: its end is the end of this worker, too.
                for pid in reversed(pids):
                    os.kill(pid, signal.SIGKILL)
            yield batch

    from pyspark import TaskContext

    from sparrowmq.spark.sink import BATCH_ID

    return lambda frame: frame.mapInArrow(watch, frame.schema)


def main(name_server: str, kind: str, topic: str, folder: Path, point: str) -> None:
    """Run until the kill."""
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(folder / "local"),
    }
    spark = spark_session("killed query", master="local[2]", settings=settings)
    through: Through = unchanged
    if point == ROWS:
        through = killing(processes_of(spark))
    else:
        die_before(spark, FILES[point])
    run_query(spark, name_server, kind, topic, folder, through)


def committed_offsets(folder: Path) -> Offsets:
    """The end of the last batch that Spark has committed."""
    checkpoint = folder / "checkpoint"
    batch = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return from_json(json.loads(lines[-1]))


def group_offsets(name_server: str, topic: str, folder: Path) -> dict[Queue, int | None]:
    """Where the brokers think that the query is."""
    with RemoteCluster(name_server) as wire:
        group = copy_of(topic, folder)
        return {queue: wire.consumer_offset(group, queue) for queue in wire.queues(topic)}


def progress_problems(name_server: str, topic: str, folder: Path) -> Iterator[str]:
    """Queues in which the group is beyond what Spark has committed."""
    ends = committed_offsets(folder)
    for queue, at in group_offsets(name_server, topic, folder).items():
        if at is not None and at > ends[queue]:
            yield f"the group is at {at} in {queue}, Spark has committed {ends[queue]}"


def counted(frame: DataFrame) -> Counter[str]:
    """Rows, in all their columns, and how often each is there."""
    return Counter(map(repr, map(_plain, frame.collect())))


def _plain(row: Any) -> list[Any]:
    return [sorted(value.items()) if isinstance(value, dict) else value for value in row]


def differences(wanted: Counter[str], found: Counter[str]) -> Iterator[str]:
    """What is missing and what is too much."""
    for row, count in (wanted - found).items():
        yield f"{count} × missing: {row}"
    for row, count in (found - wanted).items():
        yield f"{count} × too much: {row}"


def files_written(spark: SparkSession, folder: Path) -> DataFrame:
    """What a query has written, as its commits say."""
    return spark.read.parquet(str(folder / "rows"))


def file_problems(wanted: DataFrame, folder: Path) -> Iterator[str]:
    """Each wanted row has to be there once, equal in every column."""
    found = files_written(wanted.sparkSession, folder)
    yield from differences(counted(wanted), counted(found.select(*wanted.columns)))


def copy_problems(wanted: DataFrame, found: DataFrame, point: str) -> Iterator[str]:
    """Nothing may be lost; what came twice is one batch at most, and its ids tell."""
    once = deduplicated(found).select(*COPIED)
    yield from differences(counted(wanted.select(*COPIED)), counted(once))
    twice = found.count() - MESSAGES
    allowed = {"committed": {ROWS_A_BATCH}, ROWS: set(range(ROWS_A_BATCH + 1))}.get(point, {0})
    if twice not in allowed:
        yield f"{twice} rows came twice"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
