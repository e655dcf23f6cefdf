"""`python -m bench.spark_read [--rows N]`: our source against spark-sql-kafka on the same data.

One run on two cores, servers included. Both read the same bodies from eight queues or partitions:
count, noop (every column), an aggregate, and Parquet; ours from the broker and from its log files,
which hold nothing else then. Then the memory of a Python worker at a backlog of a gigabyte, and
what a micro-batch costs when there is nearly nothing in it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench import report
from bench.contenders import Contender, start_sparrow
from bench.contest import Effort, say
from bench.figures import Figure, at_most, times_more
from bench.kafka import CONNECTOR, PARTITIONS, Kafka, connector_jars
from bench.machine import process_cpu_s, this_machine
from bench.spark_write import Took, everybody
from tests.interop.cluster import accepts, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
TOPIC = "bench-read"
LARGE, SMALL = "bench-gigabyte", "bench-trickle"
GIGABYTE = 1 << 30
LARGE_BODY = 8 << 10
TRICKLE = 40
SKIPPED = 10
"""Micro-batches that warm up."""
TARGET_RATIO = 0.8
TARGET_FILES_RATIO = 1
TARGET_WORKER_MB = 500
TARGET_BATCH_MS = 200


@dataclass(frozen=True)
class Sides:
    """Both servers, full of the same, and the session that reads them."""

    spark: "SparkSession"
    sparrow: Contender
    kafka: Kafka
    rows: int

    def ours(self, topic: str = TOPIC, **options: str) -> "DataFrame":
        """A topic of SparrowMQ's broker, all columns."""
        base = {"nameServer": self.sparrow.name_server, "subscribe": topic}
        return self.spark.read.format("rocketmq").options(**base, **options).load()

    def theirs(self) -> "DataFrame":
        """The same bodies in Kafka, all columns."""
        reader = self.spark.read.format("kafka").option("subscribe", TOPIC)
        return reader.option("kafka.bootstrap.servers", self.kafka.address).load()

    def files(self) -> "DataFrame":
        """The same topic from the broker's log files, all columns; whole when everything is
        synced."""
        store = next(self.sparrow.folder.rglob("commitlog")).parent
        return self.spark.read.format("rocketmq-log").option("topic", TOPIC).load(str(store))

    def once(self, act: Callable[[], object]) -> Took:
        """What one action takes, servers included."""
        before, began_s = self._cpu_s(), time.perf_counter()
        act()
        return Took(self.rows, time.perf_counter() - began_s, self._cpu_s() - before)

    def _cpu_s(self) -> float:
        pids = {*everybody(os.getpid()), *self.sparrow.pids, *self.kafka.pids}
        return sum(map(process_cpu_s, pids))


def spark_read(folder: Path, effort: Effort) -> list[Figure]:
    """The suite `spark`."""
    return list(measure(folder, rows=effort.backlog, runs=effort.runs))


def measure(folder: Path, rows: int, runs: int) -> Iterator[Figure]:
    """Start everything, fill it, read it; figures as they come."""
    with ExitStack() as stack:
        kafka = Kafka(folder / "kafka")
        stack.callback(kafka.close)
        sparrow = start_sparrow(folder / "sparrow", sync_flush=False)
        stack.callback(sparrow.close)
        wait_until(lambda: accepts(sparrow.name_server), "the name server listens", folder)
        spark = _session(folder)
        stack.callback(spark.stop)
        sides = Sides(spark, sparrow, kafka, rows)
        _fill(sides)
        yield from _compare(sides, folder, runs)
        _fill_more(sides)
        yield _worker_memory(sides)
        yield _micro_batch(sides, folder)


def _compare(sides: Sides, folder: Path, runs: int) -> Iterator[Figure]:
    for work, act in _works(folder).items():
        say(f"Spark reads, {work}")
        ours: list[Took] = []
        files: list[Took] = []
        theirs: list[Took] = []
        for _ in range(runs):
            ours.append(sides.once(partial(act, sides.ours())))
            theirs.append(sides.once(partial(act, sides.theirs())))
            files.append(sides.once(partial(act, sides.files())))
        name = f"{work} (Apache: {CONNECTOR})"
        yield from _beside(f"Spark batch read, {name}", ours, theirs, TARGET_RATIO)
        yield from _beside(f"Spark reads log files, {name}", files, theirs, TARGET_FILES_RATIO)


def _beside(work: str, ours: list[Took], theirs: list[Took], target: float) -> Iterator[Figure]:
    best = max(took.rows_s for took in ours), max(took.rows_s for took in theirs)
    yield Figure(work, "speed", "rows/s", *best, times_more(target))
    cpu = min(took.cpu_us for took in ours), min(took.cpu_us for took in theirs)
    yield Figure(work, "CPU of all processes", "µs/row", *cpu)


def _works(folder: Path) -> "dict[str, Callable[[DataFrame], object]]":
    def noop(frame: "DataFrame") -> None:
        frame.write.format("noop").mode("overwrite").save()

    def aggregate(frame: "DataFrame") -> object:
        body = "body" if "body" in frame.columns else "value"
        return frame.selectExpr(f"sum(length({body}))", "max(topic)").collect()

    def parquet(frame: "DataFrame") -> None:
        frame.write.mode("overwrite").parquet(str(folder / "parquet"))

    return {
        "count": lambda frame: frame.count(),
        "noop": noop,
        "aggregate": aggregate,
        "parquet": parquet,
    }


def _worker_memory(sides: Sides) -> Figure:
    """The most that a Python worker had while a gigabyte was read."""
    say("memory of a Python worker while a gigabyte is read")
    sides.ours(LARGE).write.format("noop").mode("overwrite").save()
    # Workers stay for a while after their task: their high-water mark can be asked for later.
    peaks = [_peak_mb(pid) for pid in everybody(os.getpid()) if _is_worker(pid)]
    work = "Spark batch read, a backlog of 1 GB"
    return Figure(work, "memory of a worker", "MB", max(peaks), None, at_most(TARGET_WORKER_MB))


def _is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"pyspark.daemon" in command


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _micro_batch(sides: Sides, folder: Path) -> Figure:
    """Batches of one message each into a sink that drops it."""
    say("what a micro-batch costs")
    options = {
        "nameServer": sides.sparrow.name_server,
        "subscribe": SMALL,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1",
    }
    frame = sides.spark.readStream.format("rocketmq").options(**options).load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.awaitTermination()
    took = [
        progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    middle = float(median(took[SKIPPED:]))
    work = "Spark stream, batches of one message"
    return Figure(work, "a micro-batch", "ms", middle, None, at_most(TARGET_BATCH_MS))


def _fill(sides: Sides) -> None:
    """The same bodies into both, and nothing else: the log files hold what Kafka holds."""
    say(f"filling both with {sides.rows:,} messages")
    rows = sides.spark.range(0, sides.rows, 1, CORES)
    bodies = rows.selectExpr(
        "cast(lpad(id, 128, 'x') as binary) as body", "'created' as tags", "array(id) as keys"
    )
    ours = bodies.selectExpr("body", "tags", "transform(keys, k -> string(k)) as keys")
    _send(sides, TOPIC, ours)
    kafka = bodies.selectExpr("string(keys[0]) as key", "body as value")
    kafka_writer = kafka.write.format("kafka").option("topic", TOPIC)
    kafka_writer.option("kafka.bootstrap.servers", sides.kafka.address).save()


def _fill_more(sides: Sides) -> None:
    """What is measured without Kafka."""
    say("filling our broker with a gigabyte")
    large = sides.spark.range(0, GIGABYTE // LARGE_BODY, 1, CORES)
    _send(sides, LARGE, large.selectExpr(f"cast(lpad(id, {LARGE_BODY}, 'x') as binary) as body"))
    _send(sides, SMALL, sides.spark.range(0, TRICKLE, 1, 1).selectExpr("string(id) as body"))


def _send(sides: Sides, topic: str, frame: "DataFrame") -> None:
    _create_topic(sides.sparrow.name_server, topic)
    writer = frame.write.format("rocketmq").option("nameServer", sides.sparrow.name_server)
    writer.option("topic", topic).mode("append").save()


def _create_topic(name_server: str, topic: str) -> None:
    import asyncio

    from sparrowmq.admin.admin import Admin

    async def work() -> None:
        async with Admin(name_server) as admin:
            await admin.create_topic(topic, queues=1 if topic == SMALL else PARTITIONS)

    asyncio.run(work())


def _session(folder: Path) -> "SparkSession":
    from sparrowmq.spark.session import spark_session

    settings = {
        "spark.local.dir": str(folder / "spark"),
        "spark.jars": connector_jars(),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.streaming.numRecentProgressUpdates": str(2 * TRICKLE),
    }
    spark = spark_session("bench", master=f"local[{CORES}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> int:
    """Measure and report; a missing jar is a failure."""
    parser = argparse.ArgumentParser(prog="bench.spark_read", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    machine = this_machine()
    with tempfile.TemporaryDirectory(
        prefix="sparrowmq-bench-", ignore_cleanup_errors=True
    ) as folder:
        figures: list[Figure] = []
        try:
            for figure in measure(Path(folder), arguments.rows, arguments.runs):
                figures.append(figure)  # one by one: a failure keeps them
        finally:  # what was measured before a failure counts
            report.show(machine, figures, [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
