"""A Spark cluster whose workers do not have this package reads and writes topics."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.blocking import PushConsumer
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.testing import Cluster
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import sizes
from tests.spark.topics import fill

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from tests.spark.cluster_job import BATCH_ROWS
from tests.spark.standalone import standalone

DEADLINE_S = 900.0
PROJECT = Path(__file__).resolve().parents[2]
TASKS = 2
SENT_BEFORE = 2
"""Rows of each task that have arrived when a worker is killed."""


def open_gates(folder: Path) -> list[int]:
    """Let the tasks through that wait; for as long as these are open also those that come."""
    # Opened for reading and writing, which does not block: the killed task comes no more.
    return [os.open(gate, os.O_RDWR) for gate in folder.iterdir()]


@pytest.mark.slow
def test_source_sink_log_source_and_archive_work_on_a_cluster_that_loses_a_worker(
    running: Cluster, tmp_path: Path
) -> None:
    for topic in ("cluster-in", "cluster-copy", "cluster-written"):
        create_topic(running, topic, TASKS)
    sent = fill(running, "cluster-in", 100)
    gates = tmp_path / "gates"
    gates.mkdir()
    for task in range(TASKS):
        os.mkfifo(gates / str(task))
    is_under_way = threading.Event()
    arrived: set[tuple[str, bytes]] = set()
    arriving = threading.Lock()

    def handle(messages: Any) -> None:
        with arriving:
            arrived.update((message.tags, message.body) for message in messages)
            counts = Counter(task for task, _ in arrived)
        if len(counts) == TASKS and min(counts.values()) >= SENT_BEFORE:
            is_under_way.set()

    with (
        standalone(tmp_path) as cluster,
        PushConsumer(
            "watcher",
            {"cluster-copy": "*"},
            name_servers=running.name_server,
            # The tasks send a few rows and wait: none of these may be missed.
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        ) as consumer,
    ):
        consumer.start(handle)
        directory = tmp_path / "driver"
        directory.mkdir()
        store = running.data_dir / "broker-a"
        arguments = [cluster.url, running.name_server, str(store), str(directory), str(gates)]
        environ = {
            **os.environ,
            "PYSPARK_PYTHON": str(cluster.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        with (
            (tmp_path / "driver.log").open("w") as log_file,
            subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_job", *arguments],
                cwd=PROJECT,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=log_file,
                text=True,
            ) as job,
        ):

            def end_waiting() -> None:
                job.wait()  # also of a job that fails early
                is_under_way.set()

            ended = threading.Thread(target=end_waiting)
            ended.start()
            opened: list[int] = []
            try:
                cluster.wait_for_workers()
                assert is_under_way.wait(DEADLINE_S), (tmp_path / "driver.log").read_text()
                assert job.poll() is None, (tmp_path / "driver.log").read_text()
                cluster.workers[0].kill()
                opened.extend(open_gates(gates))
                output, _ = job.communicate(timeout=DEADLINE_S)
            finally:
                job.kill()
                ended.join()
                for gate in opened:
                    os.close(gate)
    log = (tmp_path / "driver.log").read_text()
    assert job.returncode == 0, log
    found = dict(map(json.loads, output.splitlines()))
    assert {Path(home).parents[1].suffix for home in found["home"]} == {".zip"}
    assert found["batch"] == list(range(BATCH_ROWS))
    assert found["log"] == found["archive"] == len(sent)
    assert found["stream"] == list(range(len(sent)))
    # The task of the killed worker was repeated, so some rows are there twice.
    assert len(sent) + SENT_BEFORE <= sum(sizes(running, "cluster-copy")) < 2 * len(sent)
    assert "Lost task" in log or "Lost executor" in log or "ExecutorLost" in log
