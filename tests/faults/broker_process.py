"""A broker in a separate process, to be killed."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from sparrowmq.testing.loop_watchdog import LIMIT_MS
from tests.faults.watched_loops import Watched

_READY = re.compile(rb"ready: broker \S+ (?:slave \d+ )?[\d.]+:(\d+)")
_ROOT = Path(__file__).parents[2]
_WATCHDOG = {
    "sparrowmq": "sparrowmq.testing.loop_watchdog",
    "tests.faults.set_clock_broker": "tests.faults.set_clock_broker",
    "tests.faults.slow_disk_broker": "tests.faults.slow_disk_broker",
}
"""By program, the one that runs it under the watchdog; others choose for themselves."""


class BrokerProcess:
    """Started when created, on a free `port`."""

    def __init__(
        self,
        data: Path,
        *options: str,
        module: str = "sparrowmq",
        prefix: tuple[str, ...] = (),
        stalls: Path | None = None,
        stall_ms: float = LIMIT_MS,
        is_traced: bool = False,
    ) -> None:
        """`stalls` is a file for callbacks that block the loop too long, as JSON lines.

        Without one it is that of the campaign, unless `prefix` is a tracer. Callbacks last as long
        as a tracer needs, and the watchdog opens files, which would count as calls of the broker.
        """
        began = time.monotonic()
        self.log = data.parent / f"{data.name}.log"
        program = [module]
        if stalls is None and module in _WATCHDOG and not is_traced:
            stalls = Watched.into
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


class StartFailed(Exception):
    """The broker ended before it was ready."""
