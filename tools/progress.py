"""Runs a command that takes a while and shows its progress in one line."""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

LINES_KEPT = 25
PIP_STARTS = "Collecting "
SYSTEM_CERTIFICATES = {"UV_SYSTEM_CERTS": "true"}
"""uv uses its own certificates by default; with a proxy only the machine's are right."""


def follow(command: Sequence[str | Path], title: str, total: int = 0) -> tuple[int, str]:
    """Runs the command; returns its exit code and the last lines of its output.

    The command inherits descriptors that the caller marked as inheritable, such as a lock. On a
    terminal the line counts pip's packages up to `total`; elsewhere only the title is printed.
    """
    moving = sys.stdout.isatty()
    print(f"dev: {title} …", end="" if moving else "\n", flush=True)
    last: deque[str] = deque(maxlen=LINES_KEPT)
    done = 0
    with subprocess.Popen(
        command,
        env={**os.environ, **SYSTEM_CERTIFICATES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        close_fds=False,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            if line.startswith(PIP_STARTS):
                done += 1
                _show(moving, f"{title}: {done} of {total}, {line.split()[1]}")
            elif line.startswith("Installing"):
                _show(moving, f"{title}: unpacking")
    if moving:
        print(f"\r\033[Kdev: {title}", flush=True)
    return process.returncode, "".join(last)


def _show(moving: bool, text: str) -> None:
    if moving:
        print(f"\r\033[Kdev: {text}", end="", flush=True)
