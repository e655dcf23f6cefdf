"""`python -m bench.spark_write [--rows N]`: rows a second of the Spark sink.

One run on two cores, broker included: `local[2]` writes 128-byte bodies into a topic of eight
queues. CPU is that of everything that takes part, so it says the same on a busy machine; wall-clock
speed does not.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import report
from bench.contenders import Contender, start_sparrow
from bench.figures import Figure, Target, at_least, at_most
from bench.machine import process_cpu_s, this_machine
from tests.interop.cluster import accepts, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
TOPIC = "bench-sink"
QUEUES = 8
TARGET_ROWS_S = 100_000
RUNS = 2


@dataclass(frozen=True)
class Took:
    """What a run cost."""

    rows: int
    seconds: float
    cpu_s: float

    @property
    def rows_s(self) -> float:
        """As the clock on the wall saw it."""
        return self.rows / self.seconds

    @property
    def cpu_us(self) -> float:
        """Per row, of all processes together."""
        return self.cpu_s / self.rows * 1e6


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="bench.spark_write", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="sparrowmq-bench-") as name:
        folder = Path(name)
        broker = start_sparrow(folder / "broker", sync_flush=False)
        try:
            wait_until(lambda: accepts(broker.name_server), "the name server listens", folder)
            with session(folder) as spark:
                figures = measure(spark, broker, rows)
        finally:
            broker.close()
    report.show(machine, figures, [])
    return 0


def measure(spark: "SparkSession", broker: Contender, rows: int) -> list[Figure]:
    """The sink with few and with many columns, then the log source."""
    _create_topic(broker.name_server)
    meter = Meter(broker)
    plain = spark.range(0, rows, 1, CORES).selectExpr("cast(lpad(id, 128, 'x') as binary) as body")
    rich = plain.selectExpr(
        "body",
        "'created' as tags",
        "array(cast(crc32(body) as string)) as keys",
        "cast(crc32(body) % 1000 as string) as shardingKey",
    )
    sink = (broker.name_server, TOPIC)
    write(plain.limit(10_000), *sink)
    figures = []
    for work, frame in (("sink, body only", plain), ("sink, tags, keys, sharding key", rich)):
        took = meter.best(rows, partial(write, frame, *sink))
        figures += _figures(work, took, at_least(TARGET_ROWS_S))
    return figures


def _figures(work: str, took: Took, target: Target) -> list[Figure]:
    # What two cores could do if they did nothing else.
    most_us = CORES / target.bound * 1e6
    return [
        Figure(work, "speed", "rows/s", took.rows_s, None, target),
        Figure(work, "CPU of all processes", "µs/row", took.cpu_us, None, at_most(most_us)),
    ]


def write(frame: "DataFrame", name_server: str, topic: str) -> None:
    """Send all rows."""
    writer = frame.write.format("rocketmq").option("nameServer", name_server)
    writer.option("topic", topic).mode("append").save()


class Meter:
    """Measures what Spark, its Python workers and the broker use."""

    def __init__(self, broker: Contender) -> None:
        self._broker = broker

    def best(self, rows: int, act: Callable[[], object], runs: int = RUNS) -> Took:
        """The quickest of some runs."""
        return min((self._once(rows, act) for _ in range(runs)), key=lambda took: took.cpu_s)

    def _once(self, rows: int, act: Callable[[], object]) -> Took:
        cpu_s, began_s = self._cpu_s(), time.perf_counter()
        act()
        return Took(rows, time.perf_counter() - began_s, self._cpu_s() - cpu_s)

    def _cpu_s(self) -> float:
        pids = {*everybody(os.getpid()), *self._broker.pids}
        return sum(map(process_cpu_s, pids))


def everybody(pid: int) -> list[int]:
    """A process and those below it, whichever thread started them: Java has many that do."""
    below = [int(child) for listed in _children(pid) for child in listed.split()]
    return [pid, *(one for child in below for one in everybody(child))]


def _children(pid: int) -> Iterator[str]:
    """Of each thread of a process that still exists."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield (thread / "children").read_text()


@contextmanager
def session(folder: Path) -> "Iterator[SparkSession]":
    """Spark on two cores."""
    from sparrowmq.spark.session import spark_session

    spark = spark_session(
        "bench", master=f"local[{CORES}]", settings={"spark.local.dir": str(folder / "spark")}
    )
    try:
        yield spark
    finally:
        spark.stop()


def _create_topic(name_server: str) -> None:
    import asyncio

    from sparrowmq.admin.admin import Admin

    async def work() -> None:
        async with Admin(name_server) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)

    asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main())
