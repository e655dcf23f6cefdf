"""Killing or failing a process at its n-th system call, through strace.

In process the recording disk does the same for every call of the store (`cut_at`, `fail`); this is
for whole programs. A mapped write is not a system call: only calls that strace sees can be hit.
"""

import shutil
import subprocess
import sys
from pathlib import Path

TRACED = "pwrite64,pwritev,ftruncate,fallocate,fdatasync,fsync,rename,unlink"


def is_available() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    trial = ["strace", "-f", "-o", "/dev/null", sys.executable, "-c", "pass"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


def kill_at(call: str, number: int) -> tuple[str, ...]:
    """What to put before a command: SIGKILL at the `number`-th `call` of a thread."""
    return _strace(f"{call}:signal=KILL:when={number}")


def fail_from(
    call: str, error: str, number: int, *, times_in: str = "/dev/null"
) -> tuple[str, ...]:
    """From the `number`-th `call` of a thread on, each fails with `error`, such as EIO.

    `times_in` is a file for what `seconds_after_first_failure` reads.
    """
    return _strace(f"{call}:error={error}:when={number}+", times_in)


def seconds_after_first_failure(times_in: Path) -> float:
    """How long the process lived on after the first call that failed; raises ValueError."""
    lines = times_in.read_text().splitlines()
    # pid, seconds since 1970, and the call or "+++ exited with 1 +++"
    times = [float(line.split()[1]) for line in lines]
    failed = [at for at, line in zip(times, lines, strict=True) if "(INJECTED)" in line]
    if not failed:
        raise ValueError("no call failed")
    return times[-1] - failed[0]


def _strace(injection: str, output: str = "/dev/null") -> tuple[str, ...]:
    call = injection.partition(":")[0]
    return (
        "strace",
        "-f",
        "-q",
        "-ttt",
        "-o",
        output,
        "-e",
        f"trace={call}",
        "-e",
        f"inject={injection}",
    )
