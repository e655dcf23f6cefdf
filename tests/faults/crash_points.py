"""Killing or failing a process at its n-th system call, through strace.

In process the recording disk does the same for every call of the store (`cut_at`, `fail`); this is
for whole programs. A mapped write is no system call: what has to be hit is what strace sees.
"""

import shutil
import subprocess
import sys

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


def fail_from(call: str, error: str, number: int) -> tuple[str, ...]:
    """From the `number`-th `call` of a thread on, each fails with `error`, such as EIO."""
    return _strace(f"{call}:error={error}:when={number}+")


def _strace(injection: str) -> tuple[str, ...]:
    call = injection.partition(":")[0]
    return (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={injection}",
    )
