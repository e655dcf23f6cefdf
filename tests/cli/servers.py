"""Servers and commands in separate processes: started, stopped, given limits."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.patience import PATIENCE_S, PATIENT

ROOT = Path(__file__).parents[2]
AS_A_COMMAND = (
    f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r})\n{PATIENT}"
    "runpy.run_module('sparrowmq', run_name='__main__', alter_sys=True)\n"
)
"""`python -m sparrowmq`, patient with its servers."""


class Up(NamedTuple):
    """A running `sparrowmq up`."""

    process: subprocess.Popen[str]
    ready: str
    name_server: str


def sparrowmq(
    *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with these environment variables."""
    return subprocess.run(
        [sys.executable, "-c", AS_A_COMMAND, *arguments],
        cwd=cwd,
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def sparrowmq_on_a_full_disk(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose output goes to a full device."""
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [sys.executable, "-c", AS_A_COMMAND, *arguments],
            env=clean_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


def with_open_files(soft: int, hard: int | None = None) -> tuple[str, ...]:
    """The prefix of a command that limits its open files."""
    limits = f"ulimit -S -n {soft}" + (f" && ulimit -H -n {hard}" if hard is not None else "")
    return ("sh", "-c", f'{limits} && exec "$@"', "sh")


def clean_environment() -> dict[str, str]:
    """Ours, without settings of the machine."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SPARROWMQ_")}


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process whose output can be read; killed at the end if it still runs."""
    with subprocess.Popen(
        command,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def up(data: Path, *arguments: str, soft_files: int | None = None) -> Iterator[Up]:
    """`sparrowmq up` on free ports; killed at the end if it still runs.

    `soft_files` is its soft limit of open files when it starts.
    """
    prefix = with_open_files(soft_files) if soft_files is not None else ()
    command = [*prefix, sys.executable, "-m", "sparrowmq", "up", "--data", str(data)]
    ports = ["--port", "0", "--nameserver-port", "0", "--no-console"]
    with running([*command, *ports, *arguments]) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.search(r"name server (\S+),", ready)
        assert found is not None, (ready, process.stderr.read() if process.stderr else "")
        yield Up(process, ready, found.group(1))


def stop(served: Up) -> tuple[int, str]:
    """SIGTERM; the exit code and what was logged."""
    served.process.terminate()
    _, logged = served.process.communicate(timeout=PATIENCE_S)
    return served.process.returncode, logged


@contextmanager
def broker(data: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A ready `sparrowmq broker` on a free port; killed at the end if it still runs."""
    command = [sys.executable, "-m", "sparrowmq", "broker", "--data", str(data), "--port", "0"]
    with running([*command, *arguments]) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("sparrowmq ready")
        yield process


def logged_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines that a server logs up to one with this text; it is killed when none comes."""
    assert process.stderr is not None
    limit = threading.Timer(PATIENCE_S, process.kill)
    limit.start()
    lines = []
    try:
        for line in process.stderr:
            lines.append(line.rstrip())
            if text in line:
                return lines
    finally:
        limit.cancel()
    raise AssertionError(f"never logged {text!r}: {lines}")
