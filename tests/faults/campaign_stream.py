"""The Spark stream of a campaign: a driver in a separate process, which may be killed.

`python -m tests.faults.campaign_stream NAME-SERVER FOLDER [--planted]`

```
FOLDER/checkpoint       Spark's, which survives the driver
FOLDER/batches/N-PID    what the driver of that number got in micro-batch N, as JSON, synced
FOLDER/driver.log       what it and Java said
```
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.session import NoJava, find_java, spark_session
from tests.faults.campaign import Call
from tests.faults.campaign_clients import PLAIN, TRADES, ClientWorld
from tests.repo.tree import ROOT
from tests.spark.standalone import QUICK_JAVA
from tools.demo_spark import run_patiently

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM = "stream"
STREAMED = PLAIN, TRADES
"""Its topics. It never sees what comes again or later, and a topic that is deleted would excuse
whatever it missed there."""
_NICENESS = 10
_LONGEST_OUTAGE = "10m"
"""Longer than any fault: no outage of a campaign may end the query."""


def why_no_stream() -> str:
    """What is missing for a stream on this machine; empty where nothing is."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is missing"
    try:
        find_java(os.environ)
    except NoJava as error:
        return str(error)
    return ""


class Stream:
    """The driver as the campaign sees it: started, killed, and read by its files."""

    def __init__(self, name_server: str, folder: Path, *, is_planted: bool = False) -> None:
        """`is_planted`: drivers after the first forget the checkpoint, and begin at the end."""
        self._command = [sys.executable, "-m", __name__, name_server, str(folder)]
        self._command += ["--planted"] * is_planted
        self._folder = folder
        self._noted: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "batches").mkdir(parents=True)

    def start(self) -> None:
        """Start a driver, which continues from the checkpoint when it is ready."""
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 for the driver and its Java machine; Spark's workers end with that."""
        if self._process is None or self._process.poll() is not None:
            return  # its process id may belong to another process by now
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def is_reading(self) -> bool:
        """Whether the driver has got a micro-batch since it was started."""
        assert self._process is not None
        return any((self._folder / "batches").glob(f"*-{self._process.pid}"))

    def why_ended(self) -> str:
        """The end of the log of a driver that ended by itself; empty while it runs."""
        if self._process is None or self._process.poll() is None:
            return ""
        tail = (self._folder / "driver.log").read_text(errors="replace")[-500:]
        return f"exit {self._process.returncode}: {tail}"

    def note(self, world: ClientWorld) -> None:
        """Add the messages received since the last call to the story."""
        for path in sorted((self._folder / "batches").glob("[0-9]*")):
            if path.name in self._noted:
                continue
            self._noted.add(path.name)
            for topic, queue_id, body in json.loads(path.read_bytes()):
                found = world.story.take(base64.b64decode(body), f"for {STREAM}")
                if found is not None:
                    at_s, at_ms = world.now_s, world.clock()
                    call = Call(STREAM, STREAM, topic, queue_id, found, at_s, at_ms)
                    world.story.calls.append(call)
                    world.story.end(call, at_s, is_done=True)


# ---- the driver


def keep(folder: Path, frame: DataFrame, batch_id: int) -> None:
    """Write down what a micro-batch has, all of it or nothing."""
    rows = [
        (topic, queue_id, base64.b64encode(body).decode())
        for topic, queue_id, body in frame.collect()
    ]
    name = f"{batch_id}-{os.getpid()}"
    unfinished = folder / "batches" / f".{name}"
    with unfinished.open("w") as file:
        json.dump(rows, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / "batches" / name)


def main(name_server: str, folder: Path, *, is_planted: bool) -> None:
    """Read until killed."""
    forgets = is_planted and any((folder / "batches").iterdir())
    # The campaign judges how long the broker's loop is held: Spark takes what is left of the CPUs.
    os.nice(_NICENESS)
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "1",
    }
    options = {
        "nameServer": name_server,
        "subscribe": ",".join(STREAMED),
        "group": STREAM,
        "columns": "topic,queueId,body",
        "startingOffsets": "latest" if forgets else "earliest",
        "failOnDataLoss": "false",
        "retryTimeout": _LONGEST_OUTAGE,
    }
    spark = spark_session("campaign", master="local[1]", settings=settings)
    checkpoint = folder / (f"checkpoint-{os.getpid()}" if forgets else "checkpoint")
    frame = spark.readStream.format("rocketmq").options(**options).load()
    writer = frame.writeStream.foreachBatch(partial(keep, folder))
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(processingTime="1 second")
    run_patiently(lambda: writer.start().awaitTermination())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), is_planted="--planted" in sys.argv)
