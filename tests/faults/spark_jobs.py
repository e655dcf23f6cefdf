"""Spark jobs and queries killed at every step: their drivers, executors and executors' workers.

Each is killed once at a step and started again; what comes out is compared, row by row and in all
columns, with what a run without faults gives.
"""

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from sparrowmq.testing import Cluster, cluster
from tests.faults.scored import Scored
from tests.faults.spark_executors import judged_kills
from tests.faults.spark_queries import Queries
from tests.repo.tree import ROOT
from tests.spark.admin import create_topic
from tests.spark.death import EXECUTOR
from tests.spark.executed import FILES, TOPIC
from tests.spark.executor_kill import KILLS, Kill
from tests.spark.executor_kill import MESSAGES as EXECUTED
from tests.spark.jobs.backlog import fill_topic, offsets_of, put_group, sizes, table
from tests.spark.jobs.killed_job import (
    KILLED_WORKER,
    ROWS_A_BATCH,
    archive_job,
    drain_job,
    replay_job,
    run_job,
)
from tests.spark.killed_query import MESSAGES as QUERIED
from tests.spark.killed_query import POINTS, counted, differences
from tests.spark.standalone import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 100
STEPS = {
    "archive": (
        *("planned", "written", "moved", "committed", "progress"),
        *("compacted", "compacted moved", "compacted committed", "worker"),
    ),
    "drain": (
        *("planned", "created", "under way", "sent", "committed", "finished", "moving", "moved"),
        "worker",
    ),
    "replay": ("under way", "sent", "committed", "finished", "worker"),
}


class Case(NamedTuple):
    """What is killed, and where."""

    kind: str
    step: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.step}"


MATRIX = (
    *(Case(kind, step) for kind, steps in STEPS.items() for step in steps),
    *(Case(kind, point) for kind, points in POINTS.items() for point in points),
)
SMALL = (
    *(Case("archive", "written"), Case("archive", "worker"), Case("drain", "committed")),
    *(Case("files", "rows"), Case("topic", "rows")),
)
SMALL_KILLS = (
    Kill(EXECUTOR, FILES, "while reading"),
    Kill(EXECUTOR, TOPIC, "after sending"),
)


def spark_jobs(seed: int, small: bool, only: str = "") -> Scored:
    """Row 16, or those of its cases that have `only` in their names."""
    scored = Scored(16, "Spark jobs and queries killed")
    tally = _Tally(scored)
    cases = [case for case in (SMALL if small else MATRIX) if only in str(case)]
    kills = [kill for kill in (SMALL_KILLS if small else KILLS) if only in str(kill)]
    if not cases and not kills:
        names = ", ".join(map(str, (*MATRIX, *KILLS)))
        scored.failures.append(f"nothing has {only!r} in its name; there are {names}")
        return scored
    if cases:
        _kill_drivers(cases, tally)
    if kills:
        _kill_executors(kills, tally)
    return scored


def _kill_drivers(cases: list[Case], tally: "_Tally") -> None:
    with _World() as world:
        for case in cases:
            is_query = case.kind in POINTS
            judge = world.queries if is_query else world.job(case)
            found = list(judge.judged(*case))
            tally.add(str(case), found, QUERIED if is_query else MESSAGES, judge.twice)


def _kill_executors(kills: list[Kill], tally: "_Tally") -> None:
    with cluster() as running, tempfile.TemporaryDirectory() as folder:
        for name, found, twice in judged_kills(running.name_server, kills, Path(folder)):
            tally.add(name, found, EXECUTED, twice)


class _Tally:
    """What was seen so far."""

    def __init__(self, scored: Scored) -> None:
        self._scored = scored
        self._kills = self._messages = self._twice = 0

    def add(self, name: str, problems: list[str], messages: int, twice: int) -> None:
        """Count a kill and print it at once: on a small machine the run takes long."""
        print(f"    {name}: {len(problems) or 'nothing'} wrong, {twice} twice", flush=True)
        self._scored.failures += [f"{name}: {text}" for text in problems]
        self._kills += 1
        self._messages += messages
        self._twice += twice
        self._scored.counts = (
            f"{self._kills} kills, {self._messages:,} messages, {self._twice} sent twice"
        )


class _World(AbstractContextManager["_World"]):
    """A cluster, a folder, and the Spark session in which everything is run again."""

    def __enter__(self) -> Self:
        from sparrowmq.spark.session import spark_session

        self._running = cluster()
        self._running.__enter__()
        self._folder = tempfile.TemporaryDirectory()
        settings = {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
        }
        self._spark = spark_session("faults", master="local[2]", settings=settings)
        self.queries = Queries(self._running, self._spark, Path(self._folder.name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._spark.stop()
        self._folder.cleanup()
        self._running.__exit__(kind, error, traceback)

    def job(self, case: Case) -> "_KilledJob":
        """A job with its own topic."""
        topic = str(case).replace(" ", "-")
        return _KilledJob(self._running, self._spark, topic, Path(self._folder.name) / topic)


class _KilledJob:
    """One job, killed once and run again."""

    def __init__(self, running: Cluster, spark: "SparkSession", topic: str, folder: Path) -> None:
        self._running = running
        self._spark = spark
        self._topic = topic
        self._folder = folder
        self.twice = 0

    def judged(self, kind: str, step: str) -> Iterator[str]:
        """What is wrong afterwards."""
        self._folder.mkdir()
        fill_topic(self._running, self._topic, MESSAGES)
        create_topic(self._running, f"{self._topic}-again", 3)
        put_group(self._running, f"slow-{self._topic}", self._topic)
        wanted = 0 if step == "worker" else -signal.SIGKILL
        code, errors = self._run(kind, step)
        if code != wanted:
            yield f"ended with {code}, not {wanted}: {errors[-500:]}"
            return
        if step == "worker" and KILLED_WORKER not in errors:
            yield "no worker was found that could be killed"
        run_job(self._spark, self._running.name_server, kind, self._topic, self._folder)
        judges = {"archive": self._archived, "drain": self._drained, "replay": self._replayed}
        yield from judges[kind]()

    def _run(self, kind: str, step: str) -> tuple[int, str]:
        module = [sys.executable, "-m", "tests.spark.jobs.killed_job"]
        given = [self._running.name_server, kind, self._topic, str(self._folder), step]
        done = subprocess.run(
            [*module, *given], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    def _archived(self) -> Iterator[str]:
        from sparrowmq.spark.jobs.archive import read_archive

        job = archive_job(self._running.name_server, self._topic, self._folder)
        live = table(self._spark, self._running, self._topic)
        archived = read_archive(self._spark, job.to).select(*live.columns)
        yield from differences(counted(live), counted(archived))
        yield from self._moved(job.group)

    def _drained(self) -> Iterator[str]:
        job = drain_job(self._running.name_server, self._topic, self._folder)
        yield from self._copied(job.to)
        yield from self._moved(job.group)

    def _replayed(self) -> Iterator[str]:
        yield from self._copied(replay_job(self._running.name_server, self._topic).to)

    def _copied(self, to: str) -> Iterator[str]:
        columns = ("body", "keys", "tags")
        live = counted(table(self._spark, self._running, self._topic).select(*columns))
        copies = counted(table(self._spark, self._running, to).select(*columns))
        self.twice = copies.total() - live.total()
        yield from differences(live, Counter(set(copies)))
        if not 0 <= self.twice <= ROWS_A_BATCH:
            yield f"{self.twice} sent twice, {ROWS_A_BATCH} allowed"

    def _moved(self, group: str) -> Iterator[str]:
        ends = sizes(self._running, self._topic)
        if (at := offsets_of(self._running, group, self._topic)) != ends:
            yield f"the group is at {at}, not at {ends}"
