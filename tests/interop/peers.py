"""A peer: one long-lived driver process around a third-party client, controlled with JSON lines."""

import json
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.interop import toolchain

ANSWER_TIMEOUT_S = 400.0
_ROOT = Path(__file__).parents[2]
# A driver's working directory is where it keeps its files, not where the tests are.
_PYTHON = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
    "from tests.interop.python_peer.driver import main; main()"
)


class PeerError(Exception):
    """The client refused or failed: its exception's class, response code if any, and text."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('class')}: {error.get('text')}")
        self.error_class: str = error["class"]
        self.text: str = error.get("text") or ""
        self.code: int | None = error.get("code")
        self.causes: list[str] = []
        cause = error.get("cause")
        while cause:
            self.causes.append(cause["class"])
            cause = cause.get("cause")


class Peer:
    """One driver process. `call` sends a command and waits for its answer."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder
            )
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, op: str, *, wait_s: float = ANSWER_TIMEOUT_S, **args: Any) -> Any:
        """Run one operation in the driver; raises PeerError for what the client raised."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **args}).encode() + b"\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=wait_s)
        except queue.Empty:
            raise TimeoutError(
                f"{self.name} did not answer {op} in {wait_s} s, see {self.log}"
            ) from None
        if not line:
            raise RuntimeError(f"{self.name} ended, see {self.log}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer.get("ok")

    def logged(self) -> list[str]:
        """What the driver and its client have logged so far."""
        files = sorted(self.log.parent.rglob("*.log"))
        return [line for file in files for line in file.read_text(errors="replace").splitlines()]

    def close(self) -> None:
        """End the driver, by its own standard input first."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Let the driver stand still, so that messages wait for its clients."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the driver."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")


def start_peer(client: str, folder: Path) -> Peer:
    """Build the client's driver if needed and start it; raises ToolMissing."""
    if client == "raw":
        return Peer(client, ["cat"], folder)
    if client == "go":
        return Peer(client, [str(toolchain.go_driver())], folder)
    if client == "python":
        return Peer(client, [sys.executable, "-c", _PYTHON], folder)
    classpath = toolchain.java_classpath(client)
    command = toolchain.java_command(classpath, folder, "256m", "interop.Driver")
    return Peer(client, command, folder)
