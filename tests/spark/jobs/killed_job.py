"""A job in a separate process that is killed at a step, with its driver.

`python -m tests.spark.jobs.killed_job NAME-SERVER archive|drain|replay TOPIC FOLDER STEP`

STEP is the name of a step, `never`, or `worker`: then a Python worker of an executor is killed
while the job's first batch runs, and Spark has to do its task again.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.jobs.archive import ArchiveJob, archive_once, opened_archive
from sparrowmq.spark.jobs.archive_compact import CompactionRule
from sparrowmq.spark.jobs.drain import DrainJob, DrainRun
from sparrowmq.spark.jobs.job import AdminOperator, JobStep, OnStep, ignore_step
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayJob, ReplayRun
from sparrowmq.spark.session import spark_session
from sparrowmq.spark.wire.cluster import RemoteCluster
from tests.spark.jobs.dying import die_at
from tests.spark.processes import parent_of, words_of
from tests.spark.standalone import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_A_BATCH = 40
KILLED_WORKER = "a worker was killed"
_SEARCH_S = 60.0


def archive_job(name_server: str, topic: str, folder: Path) -> ArchiveJob:
    """Small batches, and a compaction after the second."""
    return ArchiveJob(
        name_server=name_server,
        to=str(folder / "archive"),
        topics=(topic,),
        group=f"archive-{topic}",
        batch_rows=ROWS_A_BATCH,
        compaction=CompactionRule(least_files=3),
    )


def drain_job(name_server: str, topic: str, folder: Path) -> DrainJob:
    """Small batches to another topic."""
    return DrainJob(
        name_server=name_server,
        topic=topic,
        group=f"slow-{topic}",
        to=f"{topic}-wide",
        state=folder / "drain",
        batch_rows=ROWS_A_BATCH,
    )


def replay_job(name_server: str, topic: str) -> ReplayJob:
    """Small batches of all messages, to another topic."""
    return ReplayJob(
        name_server=name_server,
        topic=topic,
        to=f"{topic}-again",
        since=datetime(2020, 1, 1, tzinfo=UTC),
        until=datetime(2100, 1, 1, tzinfo=UTC),
        batch_rows=ROWS_A_BATCH,
    )


def kill_this_process() -> None:
    """Nothing is written, flushed or said after this."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_a_worker(begun: set[str]) -> OnStep:
    """Kills a Python worker of Spark as soon as there is one, once a batch has begun."""

    def on_step(step: JobStep) -> None:
        if step.name in ("planned", "under way") and not begun:
            begun.add(step.name)
            threading.Thread(target=_kill_first_worker, daemon=True).start()

    return on_step


def _kill_first_worker() -> None:
    ends = time.monotonic() + _SEARCH_S
    while time.monotonic() < ends:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _is_own_worker(int(entry.name)):
                os.kill(int(entry.name), signal.SIGKILL)
                print(KILLED_WORKER, file=sys.stderr, flush=True)
                return
        time.sleep(0.005)


def _is_own_worker(pid: int) -> bool:
    """A worker of tasks is a fork of a daemon for them, which is a child of Java, which is ours.

    Planning has separate daemons; Spark repeats a task, but not a plan.
    """
    try:
        daemon = parent_of(pid)
        java = parent_of(daemon)
        is_for_tasks = words_of(daemon)[-2:] == ["pyspark.daemon", "pyspark.worker"]
        return is_for_tasks and os.getpid() in (java, parent_of(java))
    except (OSError, IndexError, ValueError):
        return False


def run_job(
    spark: "SparkSession",
    name_server: str,
    kind: str,
    topic: str,
    folder: Path,
    on_step: OnStep = ignore_step,
) -> None:
    """Do what is left of the job."""

    def archive() -> None:
        with opened_archive(spark, archive_job(name_server, topic, folder), on_step) as archiver:
            archive_once(archiver)

    def drain() -> None:
        job = drain_job(name_server, topic, folder)
        with RemoteCluster(name_server) as cluster, JobJournal(job.state) as journal:
            DrainRun(job, cluster, AdminOperator(name_server), journal).run(spark, on_step)

    def replay() -> None:
        with JobJournal(folder / "replay") as journal:
            job = replay_job(name_server, topic)
            ReplayRun(spark, job, journal, lambda: int(job.until.timestamp() * 1000)).run(on_step)

    kinds: dict[str, Callable[[], None]] = {"archive": archive, "drain": drain, "replay": replay}
    kinds[kind]()


def main(name_server: str, kind: str, topic: str, folder: Path, step: str) -> None:
    """Run the job until it is killed."""
    on_step = kill_a_worker(set()) if step == "worker" else die_at(step, die=kill_this_process)
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(folder / "local"),
    }
    spark = spark_session("killed job", master="local[2,4]", settings=settings)
    run_job(spark, name_server, kind, topic, folder, on_step)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
