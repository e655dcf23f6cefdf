"""Name servers in separate processes, to be killed and restarted on the same port."""

import re
import subprocess
import sys
from pathlib import Path

from sparrowmq.testing.held_port import HeldPort
from tests.faults.watched_loops import Watched

_READY = re.compile(rb"ready: name server [\d.]+:\d+")
_ROOT = Path(__file__).parents[2]


class NameServerProcess:
    """Started when made, on a port that stays its own until `close`."""

    def __init__(
        self,
        root: Path,
        module: str = "sparrowmq",
        *,
        options: tuple[str, ...] = (),
        prefix: tuple[str, ...] = (),
        stalls: Path | None = None,
        is_watched: bool = True,
    ) -> None:
        """`stalls` is a file for callbacks that hold the loop too long, as JSON lines; without one
        it is that of the campaign, if `is_watched`."""
        self._root = root
        program = [module]
        if stalls is None and is_watched:
            stalls = Watched.into
        if stalls is not None:
            program = ["sparrowmq.testing.loop_watchdog", "--stalls", str(stalls)]
        self._before = (*prefix, sys.executable, "-m", *program)
        self._options = options
        self._held = HeldPort()
        self.port = self._held.port
        self.start()

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Ready when this returns. Raises RuntimeError."""
        command = [*self._before, "nameserver", "--port", str(self.port), *self._options]
        log = self._root / "name-server.log"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if _READY.search(line):
                return
        tail = log.read_bytes()[-2000:].decode(errors="replace")
        raise RuntimeError(f"no name server: exit {self._process.wait()}: {tail}")

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process.poll() is None:
            self._process.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()

    def close(self) -> None:
        """Kill it and give its port back."""
        self.kill()
        self._held.close()

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        return self._process.pid

    def memory_bytes(self) -> int:
        """The most it ever had resident."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0
