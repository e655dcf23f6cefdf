"""Spark jobs killed at every step, with their driver, and executors' workers killed at work.

Each job is killed once at a step and started again; what comes out is compared, row by row and in
all columns, with what the broker has, which is what a run without faults gives.
"""

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrowmq.testing import Cluster, cluster
from tests.faults.scored import Scored
from tests.spark.jobs.backlog import fill_topic, offsets_of, put_group, sizes, table
from tests.spark.jobs.killed_job import KILLED_WORKER, ROWS_A_BATCH, archive_job, drain_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 100
ARCHIVE_STEPS = (
    *("planned", "written", "moved", "committed", "progress"),
    *("compacted", "compacted moved", "compacted committed", "worker"),
)
DRAIN_STEPS = (
    *("planned", "created", "under way", "sent", "committed", "finished", "moving", "moved"),
    "worker",
)
SMALL = (("archive", "written"), ("archive", "worker"), ("drain", "committed"))
MATRIX = (
    *(("archive", step) for step in ARCHIVE_STEPS),
    *(("drain", step) for step in DRAIN_STEPS),
)


def spark_jobs(seed: int, small: bool) -> Scored:
    """Row 16."""
    from sparrowmq.spark.session import spark_session

    scored = Scored(16, "Spark jobs killed")
    spark = spark_session("faults", master="local[2]", settings={"spark.driver.memory": "1g"})
    twice = 0
    try:
        with cluster() as running, tempfile.TemporaryDirectory() as folder:
            for kind, step in SMALL if small else MATRIX:
                topic = f"{kind}-{step.replace(' ', '-')}"
                found = _Killed(running, spark, kind, topic, Path(folder) / topic)
                scored.failures += [f"{kind} at {step}: {text}" for text in found.judged(step)]
                twice += found.twice
    finally:
        spark.stop()
    kills = len(SMALL if small else MATRIX)
    scored.counts = f"{kills} kills, {kills * MESSAGES:,} messages, {twice} sent twice"
    return scored


class _Killed:
    """One job, killed once and run again."""

    def __init__(
        self, running: Cluster, spark: "SparkSession", kind: str, topic: str, folder: Path
    ) -> None:
        self._running = running
        self._spark = spark
        self._kind = kind
        self._topic = topic
        self._folder = folder
        self.twice = 0

    def judged(self, step: str) -> Iterator[str]:
        """What is wrong afterwards."""
        self._folder.mkdir()
        fill_topic(self._running, self._topic, MESSAGES)
        put_group(self._running, f"slow-{self._topic}", self._topic)
        expected = 0 if step == "worker" else -signal.SIGKILL
        for wanted, at in ((expected, step), (0, "never")):
            code, errors = self._run(at)
            if code != wanted:
                yield f"ended with {code}, not {wanted}: {errors[-500:]}"
                return
            if at == "worker" and KILLED_WORKER not in errors:
                yield "no worker was found that could be killed"
        yield from self._archived() if self._kind == "archive" else self._drained()

    def _run(self, step: str) -> tuple[int, str]:
        module = [sys.executable, "-m", "tests.spark.jobs.killed_job"]
        given = [self._running.name_server, self._kind, self._topic, str(self._folder), step]
        done = subprocess.run(
            [*module, *given], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    def _archived(self) -> Iterator[str]:
        from sparrowmq.spark.jobs.archive import read_archive

        job = archive_job(self._running.name_server, self._topic, self._folder)
        live = table(self._spark, self._running, self._topic)
        archived = read_archive(self._spark, job.to).select(*live.columns)
        yield from _compared(_rows(live), _rows(archived))
        ends = sizes(self._running, self._topic)
        if (at := offsets_of(self._running, job.group, self._topic)) != ends:
            yield f"the group is at {at}, not at {ends}"

    def _drained(self) -> Iterator[str]:
        job = drain_job(self._running.name_server, self._topic, self._folder)
        columns = ("body", "keys", "tags")
        live = _rows(table(self._spark, self._running, self._topic).select(*columns))
        copies = _rows(table(self._spark, self._running, job.to).select(*columns))
        self.twice = copies.total() - live.total()
        yield from _compared(live, Counter(set(copies)))
        if not 0 <= self.twice <= ROWS_A_BATCH:
            yield f"{self.twice} sent twice, {ROWS_A_BATCH} allowed"
        ends = sizes(self._running, self._topic)
        if (at := offsets_of(self._running, job.group, self._topic)) != ends:
            yield f"the group is at {at}, not at {ends}"


def _rows(frame: "DataFrame") -> "Counter[str]":
    return Counter(map(repr, map(_plain, frame.collect())))


def _plain(row: Any) -> list[Any]:
    return [sorted(value.items()) if isinstance(value, dict) else value for value in row]


def _compared(wanted: "Counter[str]", found: "Counter[str]") -> Iterator[str]:
    for row, count in (wanted - found).items():
        yield f"{count} × missing: {row}"
    for row, count in (found - wanted).items():
        yield f"{count} × too much: {row}"
