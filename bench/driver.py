"""The load: one Java process that takes commands, compiled when its sources changed."""

import hashlib
import json
import selectors
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.interop import toolchain

SOURCES = Path(__file__).parent / "java"
_LONGEST_S = 300.0
"""No command may take longer, whatever the broker does."""


class DriverFailed(Exception):
    """A command failed; the text says which and why."""


class Driver:
    """A running load process. One command at a time, answered by one row of numbers."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        flags = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", *toolchain.JVM_FLAGS]
        flags += [f"-Duser.home={home}", "-Drocketmq.client.logLevel=WARN"]
        self._errors = (home / "driver.err").open("ab")
        self._process = subprocess.Popen(
            ["java", *flags, "-cp", _classpath(), "bench.Driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            cwd=home,
        )
        self._held = b""

    def __enter__(self) -> "Driver":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def run(self, op: str, **fields: object) -> dict[str, Any]:
        """Do it and give its figures. Raises DriverFailed."""
        self.start(op, **fields)
        return self.finish(op)

    def start(self, op: str, **fields: object) -> None:
        """Begin a command, to do something else meanwhile."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")

    def finish(self, op: str) -> dict[str, Any]:
        """The figures of the command that was begun."""
        answer: dict[str, Any] = json.loads(self._line(op))
        if "error" in answer:
            raise DriverFailed(f"{op}: {answer['error']}")
        return answer

    def _line(self, op: str) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._held:
                if not selector.select(_LONGEST_S):
                    raise DriverFailed(f"{op}: no answer in {_LONGEST_S:.0f} s")
                data = self._process.stdout.read(65536)
                if not data:
                    raise DriverFailed(f"{op}: the load process ended, see {self._errors.name}")
                self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line


def _classpath() -> str:
    """The jars come by Maven, once, into the cache that the interop tests use as well."""
    lib = toolchain.jars("java5")
    sources = sorted(SOURCES.rglob("*.java"))
    classes = toolchain.cache() / f"classes-bench-{_digest(sources)}"
    if not (classes / ".complete").exists():
        print("bench: compiling the load", file=sys.stderr, flush=True)
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", f"{lib}/*"]
        done = subprocess.run(
            [*command, *map(str, sources)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise DriverFailed(f"the load does not compile\n{done.stderr.strip()}")
        (classes / ".complete").touch()
    return f"{classes}:{lib}/*"


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
