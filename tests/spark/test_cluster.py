"""A Spark cluster whose workers know nothing of this package reads and writes topics."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.blocking import PushConsumer
from sparrowmq.testing import Cluster
from tests.spark.topics import fill

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from tests.spark.cluster_job import SLOW_ROWS
from tests.spark.standalone import standalone

DEADLINE_S = 900.0
PROJECT = Path(__file__).resolve().parents[2]


def create(running: Cluster, *topics: str) -> None:
    async def work() -> None:
        async with Admin(running.name_server) as admin:
            for topic in topics:
                await admin.create_topic(topic, queues=2)

    asyncio.run(work())


def test_source_sink_log_source_and_archive_work_on_a_cluster_that_loses_a_worker(
    running: Cluster, tmp_path: Path
) -> None:
    sent = fill(running, "cluster-in", 100)
    create(running, "cluster-copy", "cluster-slow")
    is_under_way = threading.Event()
    arrived: list[bytes] = []

    def handle(messages: Any) -> None:
        arrived.extend(message.body for message in messages)
        if len(arrived) >= SLOW_ROWS // 10:
            is_under_way.set()

    with (
        standalone(tmp_path) as cluster,
        PushConsumer(
            "watcher", {"cluster-slow": "*"}, name_servers=running.name_server
        ) as consumer,
    ):
        consumer.start(handle)
        directory = tmp_path / "driver"
        directory.mkdir()
        store = running.data_dir / "broker-a"
        arguments = [cluster.url, running.name_server, str(store), str(directory)]
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
            try:
                assert is_under_way.wait(DEADLINE_S), (tmp_path / "driver.log").read_text()
                assert job.poll() is None, (tmp_path / "driver.log").read_text()
                cluster.workers[0].kill()
                output, _ = job.communicate(timeout=DEADLINE_S)
            finally:
                job.kill()
                ended.join()
    log = (tmp_path / "driver.log").read_text()
    assert job.returncode == 0, log
    found = dict(map(json.loads, output.splitlines()))
    assert {Path(home).parents[1].suffix for home in found["home"]} == {".zip"}
    assert found["batch"] == found["stream"] == found["log"] == found["archive"] == len(sent)
    assert found["rows"] == list(range(SLOW_ROWS))
    # The task of the killed worker was repeated, so some rows are there twice.
    assert found["written"] > SLOW_ROWS
    assert "Lost task" in log or "Lost executor" in log or "ExecutorLost" in log
