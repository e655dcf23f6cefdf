"""The programs in `examples` run against a real cluster, and end on SIGTERM as they should."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sparrowmq.blocking import PullConsumer
from sparrowmq.testing import Cluster
from tests.patience import PATIENCE_S, PATIENT

ROOT = Path(__file__).parents[2]
RUN = PATIENT + "import runpy, sys; runpy.run_module(sys.argv.pop(1), run_name='__main__')"


def program(*arguments: str) -> list[str]:
    """A module, run as `python -m` does by a client that is patient with the machine."""
    return [sys.executable, "-u", "-c", RUN, *arguments]


@contextmanager
def running(
    cluster: Cluster, *arguments: str, **settings: Any
) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "SPARROWMQ_NAME_SERVERS": cluster.name_server}
    with subprocess.Popen(
        program(*arguments), cwd=ROOT, env=environment, text=True, **settings
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def enqueue(cluster: Cluster, *arguments: str) -> str:
    environment = {**os.environ, "SPARROWMQ_NAME_SERVERS": cluster.name_server}
    return subprocess.run(
        program("examples.worker", *arguments),
        cwd=ROOT,
        env=environment,
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout


def consumed(cluster: Cluster, group: str, topic: str) -> int:
    with PullConsumer(group, name_servers=cluster.name_server) as consumer:
        return sum(consumer.committed(queue) or 0 for queue in consumer.queues(topic))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_does_the_jobs_that_other_processes_enqueue(
    sparrowmq_cluster: Cluster, number: signal.Signals
) -> None:
    assert re.fullmatch(r"[0-9A-F]{32}\n", enqueue(sparrowmq_cluster, "welcome", "Ada"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(sparrowmq_cluster, "examples.worker", **pipes) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        assert worker.stdout.readline() == "welcome Ada\n"
        enqueue(sparrowmq_cluster, "welcome", "Berta", "de")
        assert worker.stdout.readline() == "willkommen Berta\n"
        worker.send_signal(number)
        assert "Traceback" not in worker.stderr.read()
        assert worker.wait(PATIENCE_S) == 0
    assert consumed(sparrowmq_cluster, "jobs-workers", "jobs") == 2


def address_in(log: IO[str]) -> str:
    """Where uvicorn listens, as it says itself."""
    for line in log:
        found = re.search(r"running on (http://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("uvicorn ended before it listened")


def test_a_web_service_sends_and_consumes_requested_messages(
    sparrowmq_cluster: Cluster,
) -> None:
    arguments = ("uvicorn", "examples.web_service:app", "--port", "0", "--no-access-log")
    with running(sparrowmq_cluster, *arguments, stderr=subprocess.PIPE) as service:
        assert service.stderr is not None
        base = address_in(service.stderr)
        order = json.dumps({"id": "o-1", "amount": 12}).encode()
        asked = Request(f"{base}/orders", order, {"content-type": "application/json"})
        with urlopen(asked, timeout=PATIENCE_S) as placed:
            assert (placed.status, list(json.load(placed))) == (202, ["message_id"])
        with urlopen(f"{base}/bills/o-1?wait_s={PATIENCE_S}", timeout=2 * PATIENCE_S) as bill:
            assert json.load(bill) == {"order_id": "o-1"}
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{base}/bills/o-2", timeout=PATIENCE_S)
        service.terminate()
        service.stderr.read()
        service.wait(PATIENCE_S)
    # Stored by the graceful end: the next instance does not bill it again
    assert consumed(sparrowmq_cluster, "billing", "orders") == 1
