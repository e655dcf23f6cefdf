"""The job of the cluster test: everything that runs on executors, its results as lines of JSON.

python -m tests.spark.cluster_job MASTER NAME_SERVER STORE DIRECTORY
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrowmq.spark.dedup import deduplicated
from sparrowmq.spark.jobs.archive import (
    ArchiveJob,
    archive_once,
    opened_archive,
    read_archive,
)
from sparrowmq.spark.session import spark_session
from tests.spark.standalone import LOOPBACK, SMALL_JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOW_ROWS = 400
ROWS_PER_SECOND = 40


def main(master: str, name_server: str, store: str, directory: str) -> None:
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
    report("batch", topics.read("cluster-in").count())
    topics.copy_stream("cluster-in", "cluster-copy", Path(directory) / "checkpoint")
    report("stream", topics.read("cluster-copy").count())
    log = spark.read.format("rocketmq-log").option("topic", "cluster-in")
    report("log", log.option("maxBytesPerPartition", "8KiB").load(store).count())
    # A worker is killed while this runs.
    rows = spark.range(0, SLOW_ROWS, 1, 2).selectExpr("cast(id as string) as body")
    topics.write(rows, "cluster-slow")
    written = topics.read("cluster-slow")
    report("written", written.count())
    numbers = deduplicated(written).selectExpr("cast(cast(body as string) as int) as n")
    report("rows", sorted(row.n for row in numbers.collect()))
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
        writer.option("maxRowsPerSecond", str(ROWS_PER_SECOND)).mode("append").save()

    def copy_stream(self, source: str, target: str, checkpoint: Path) -> None:
        reader = self._spark.readStream.format("rocketmq").options(**self._server)
        rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
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
