"""A broker in a separate process, to be killed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from sparrowmq.testing.loop_watchdog import LIMIT_MS

_READY = re.compile(rb"ready: broker \S+ (?:slave \d+ )?[\d.]+:(\d+)")
_ROOT = Path(__file__).parents[2]
_WATCHDOG = {
    "sparrowmq": "sparrowmq.testing.loop_watchdog",
    "tests.faults.set_clock_broker": "tests.faults.set_clock_broker",
}
"""By program, the one that runs it under the watchdog; others choose for themselves."""
_STARTS = (" open_in_role", " open_broker", " broker_running ProcessSyncer.start")
"""Calls that a broker makes during its start, before it serves clients."""


class BrokerProcess:
    """Started when created, on a free `port`."""

    watched_into: ClassVar[Path | None] = None
    """A file for the stalls of all brokers that a campaign starts without one: see `Watched`."""

    def __init__(
        self,
        data: Path,
        *options: str,
        module: str = "sparrowmq",
        prefix: tuple[str, ...] = (),
        stalls: Path | None = None,
        stall_ms: float = LIMIT_MS,
    ) -> None:
        """`stalls` is a file for callbacks that block the loop too long, as JSON lines."""
        began = time.monotonic()
        self.log = data.parent / f"{data.name}.log"
        program = [module]
        if stalls is None and module in _WATCHDOG and not prefix:
            stalls = BrokerProcess.watched_into
        if stalls is not None:
            limit = ("--limit-ms", str(stall_ms))
            program = [_WATCHDOG[module], "--stalls", str(stalls), *limit]
        command = [*prefix, sys.executable, "-m", *program, "broker", "--port", "0"]
        # No server listens there: these brokers run alone and need no name server.
        alone = ["--data", str(data), "--name-servers", "127.0.0.1:1", "--ha-port", "0"]
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *alone, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                start_new_session=True,
            )
        self._is_wrapped = bool(prefix)
        self.port = self._wait_until_ready()
        self.ready_s = time.monotonic() - began

    def _wait_until_ready(self) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := _READY.search(line):
                return int(found[1])
        self._end(signal.SIGKILL)
        tail = self.log.read_bytes()[-2000:].decode(errors="replace")
        raise StartFailed(f"exit {self._reap()}: {tail}")

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        self._end(signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._end(signal.SIGTERM)
        return self._reap()

    def _end(self, number: int) -> None:
        if self.process.poll() is not None:
            return  # its process id may belong to another process by now
        with contextlib.suppress(ProcessLookupError):
            if self._is_wrapped:
                # A tracer that dies alone leaves what it traced behind.
                os.killpg(self.process.pid, number)
            else:
                os.kill(self.process.pid, number)

    def _reap(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def memory_bytes(self) -> int:
        """Its anonymous memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0


def stalls_of_service(lines: str) -> list[tuple[float, str]]:
    """Callbacks that blocked the loop, from the watchdog's file; the broker's start is left out."""
    found = []
    for line in lines.splitlines():
        stall = json.loads(line)
        calls = "".join(f" {place.rpartition(' ')[2]}" for place in stall["stack"])
        if any(start in calls for start in _STARTS):
            continue
        own_ms = stall["wall_ms"] - stall["unscheduled_ms"]
        found.append((own_ms, " < ".join(reversed(stall["stack"][-3:]))))
    return found


def too_long(stalls: list[tuple[float, str]]) -> list[str]:
    """One text for all that held a loop for longer than anything may, none for nothing."""
    over = [stall for stall in stalls if stall[0] > LIMIT_MS]
    if not over:
        return []
    longest_ms, where = max(over)
    return [f"{len(over)} stalls over {LIMIT_MS:g} ms, the longest {longest_ms:.0f} ms in {where}"]


class Watched:
    """What held the loops of the brokers that were started in a `with watched():` block."""

    stalls: list[tuple[float, str]]

    def __str__(self) -> str:
        return "".join(too_long(self.stalls)) or f"no callback held a loop for {LIMIT_MS:g} ms"


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """Run every broker process of a campaign under the watchdog, on asyncio's own loop."""
    found = Watched()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stalls"
        file.touch()
        BrokerProcess.watched_into = file
        try:
            yield found
        finally:
            BrokerProcess.watched_into = None
            found.stalls = stalls_of_service(file.read_text("utf-8"))


class StartFailed(Exception):
    """The broker ended before it was ready."""
