"""Streaming queries to files and to a topic, killed between write, commit and checkpoint."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.testing import Cluster
from tests.repo.tree import ROOT
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import table
from tests.spark.killed_query import (
    MESSAGES,
    copy_of,
    copy_problems,
    file_problems,
    files_written,
    progress_problems,
    run_query,
)
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "queried"


class Queries:
    """Queries over one topic, each with its own folder; the first of a kind runs without faults."""

    def __init__(self, running: Cluster, spark: "SparkSession", folder: Path) -> None:
        self._running = running
        self._spark = spark
        self._folder = folder
        self._calm: dict[str, Path] = {}
        self.twice = 0
        """Rows of the last query that came twice."""

    def judged(self, kind: str, point: str) -> Iterator[str]:
        """Kill one, run it again; what is wrong afterwards."""
        self.twice = 0
        if not self._calm:
            create_topic(self._running, TOPIC, 2)
            fill(self._running, TOPIC, MESSAGES)
        if kind not in self._calm:
            self._calm[kind] = self._prepared(f"calm-{kind}")
            self._again(kind, self._calm[kind])
        folder = self._prepared(f"{kind}-{point.replace(' ', '-')}")
        code, errors = self._killed(kind, folder, point)
        if code != -signal.SIGKILL:
            yield f"ended with {code}: {errors[-500:]}"
            return
        yield from progress_problems(self._running.name_server, TOPIC, folder)
        self._again(kind, folder)
        yield from self._problems(kind, folder, point)

    def _problems(self, kind: str, folder: Path, point: str) -> Iterator[str]:
        if kind == "files":
            yield from file_problems(files_written(self._spark, self._calm[kind]), folder)
            return
        found = self._copies(folder)
        self.twice = found.count() - MESSAGES
        yield from copy_problems(self._copies(self._calm[kind]), found, point)

    def _prepared(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        create_topic(self._running, copy_of(TOPIC, folder), 2)
        return folder

    def _again(self, kind: str, folder: Path) -> None:
        run_query(self._spark, self._running.name_server, kind, TOPIC, folder)

    def _copies(self, folder: Path) -> "DataFrame":
        return table(self._spark, self._running, copy_of(TOPIC, folder))

    def _killed(self, kind: str, folder: Path, point: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "tests.spark.killed_query", self._running.name_server]
        done = subprocess.run(
            [*command, kind, TOPIC, str(folder), point],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr
