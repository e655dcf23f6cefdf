"""The job of the cluster test: everything that runs on executors, its results as lines of JSON.

python -m tests.spark.cluster_job MASTER NAME_SERVER STORE DIRECTORY GATES

A worker is killed while the stream runs. Its tasks wait for that, each at a gate: a pipe in the
folder GATES that is not open for writing yet.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrowmq.spark.frames import deduplicated
from sparrowmq.spark.jobs.archive import (
    ArchiveJob,
    archive_once,
    opened_archive,
    read_archive,
)
from sparrowmq.spark.session import spark_session
from tests.spark.standalone import LOOPBACK, SMALL_JAVA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 100
ROWS_BEFORE_GATE = 6
PADDING = bytes(70_000)
"""More than the buffers between Spark and its workers hold: rows are passed on at once."""


def main(master: str, name_server: str, store: str, directory: str, gates: str) -> None:
    """Run every step and print what came out."""
    spark = spark_session(
        "cluster test",
        master=master,
        settings={
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SMALL_JAVA,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SMALL_JAVA,
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.local.dir": directory,
        },
    )
    report("home", spark.sparkContext.parallelize([0, 1], 2).mapPartitions(_home).collect())
    topics = Topics(spark, name_server)
    rows = spark.range(0, BATCH_ROWS, 1, 2).selectExpr("cast(id as string) as body")
    topics.write(rows, "cluster-written")
    report("batch", numbers(topics.read("cluster-written")))
    # Row by row, so that some are sent when their task is at its gate.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    topics.copy_stream("cluster-in", "cluster-copy", Path(directory) / "checkpoint", gates)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    report("stream", numbers(deduplicated(topics.read("cluster-copy"))))
    log = spark.read.format("rocketmq-log").option("topic", "cluster-in")
    report("log", log.option("maxBytesPerPartition", "8KiB").load(store).count())
    archive = ArchiveJob(
        name_server=name_server, to=str(Path(directory) / "archive"), topics=("cluster-in",)
    )
    with opened_archive(spark, archive) as archiver:
        archive_once(archiver)
    report("archive", read_archive(spark, archive.to).count())
    spark.stop()


def _home(_: Iterable[int]) -> Iterable[str]:
    """Where an executor has the package from."""
    import importlib.util

    import sparrowmq

    assert importlib.util.find_spec("msgspec") is None, "only pyspark, numpy and pyarrow are there"
    yield sparrowmq.__file__


def gated(gates: str) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """Rows up to the gate of their task, in its first attempt."""

    def through(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == ROWS_BEFORE_GATE and context.attemptNumber() == 0:
                open(f"{gates}/{context.partitionId()}").close()  # noqa: PTH123
            bodies = [body.as_py() + PADDING for body in batch["body"]]
            yield pa.record_batch([pa.array(bodies, pa.binary()), batch["tags"]], ["body", "tags"])

    return through


def numbers(frame: "DataFrame") -> list[int]:
    """The numbers that bodies begin with."""
    found = frame.selectExpr("cast(left(cast(body as string), 6) as int) as n")
    return sorted(row.n for row in found.collect())


class Topics:
    """Topics through source and sink."""

    def __init__(self, spark: "SparkSession", name_server: str) -> None:
        self._spark = spark
        self._server = {"nameServer": name_server}

    def read(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("rocketmq").options(**self._server)
        return reader.option("subscribe", topic).load()

    def write(self, rows: "DataFrame", topic: str) -> None:
        writer = rows.write.format("rocketmq").options(**self._server).option("topic", topic)
        writer.mode("append").save()

    def copy_stream(self, source: str, target: str, checkpoint: Path, gates: str) -> None:
        reader = self._spark.readStream.format("rocketmq").options(**self._server)
        rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        rows = rows.selectExpr("body", "concat('q', queueId) as tags")
        rows = rows.mapInArrow(gated(gates), "body binary, tags string")
        writer = rows.writeStream.format("rocketmq").options(**self._server)
        query = (
            writer.option("topic", target)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def report(step: str, result: Any) -> None:
    print(json.dumps([step, result]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
