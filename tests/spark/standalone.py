"""A Spark standalone cluster from pip's pyspark: a master and workers on loopback."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.spark.session import find_java
from tests.spark.bare_python import bare_python

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 300.0
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a Java machine that lives for a minute: what it would learn by then comes too late."""
SMALL_JAVA = f"{QUICK_JAVA} -Xss512k"
"""Six at once: each has to take little as well."""


class Daemon:
    """One process and its children, in a separate process group."""

    def __init__(self, command: list[str], environ: Mapping[str, str], directory: Path) -> None:
        directory.mkdir()
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            command,
            env=dict(environ),
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"log of {directory.name}")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line of its log that matches."""
        wanted = re.compile(pattern)

        def found() -> re.Match[str] | None:
            return next(filter(None, map(wanted.search, self._lines)), None)

        with self._changed:
            self._changed.wait_for(found, START_TIMEOUT_S)
            match = found()
        assert match, f"no line with {pattern}:\n{''.join(self._lines)}"
        return match[1]

    def kill(self) -> None:
        """End it and everything that it started, at once."""
        with ExitStack() as afterwards:
            afterwards.callback(self._reader.join)
            afterwards.callback(self._process.wait)
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Standalone:
    """A running cluster."""

    url: str
    workers: list[Daemon]
    python: Path
    """What executors run: it does not see this project."""

    def wait_for_workers(self) -> None:
        """Until the master knows them all; what needs no worker can be started before."""
        for worker in self.workers:
            worker.wait_for(r"Successfully registered with master (\S+)")


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    """A master and workers of one core each, every one in its own directory."""
    import pyspark

    home = Path(pyspark.__file__).parent
    python = bare_python(directory)
    environ = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(find_java(os.environ).home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": str(python),
    }
    command = [str(home / "bin" / "spark-class")]
    places = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
    with ExitStack() as running:
        name = "org.apache.spark.deploy.master.Master"
        master = Daemon([*command, name, *places], environ, directory / "master")
        running.callback(master.kill)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        name = "org.apache.spark.deploy.worker.Worker"
        started = []
        for number in range(workers):
            home_of_worker = directory / f"worker-{number}"
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(home_of_worker / "work")]
            daemon = Daemon([*command, name, *places, *work, url], environ, home_of_worker)
            running.callback(daemon.kill)
            started.append(daemon)
        yield Standalone(url, started, python)
