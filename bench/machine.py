"""Describes the machine of a run, and measures the resources of a process."""

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Machine:
    """Everything a number means nothing without."""

    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    java: str
    commit: str
    load_before: float
    """Processes that wanted a core during the minute before."""

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{self.cores} × {self.cpu}, {self.memory_gb:.0f} GB, {self.system}",
            f"commit {self.commit}, Python {self.python}, {self.java}",
        ]

    def to_dict(self) -> dict[str, object]:
        """For files."""
        return asdict(self)


def this_machine() -> Machine:
    """Looks."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gb=memory / 1e9,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        java=_first_line(["java", "-version"]),
        commit=_commit(),
        load_before=os.getloadavg()[0],
    )


def anonymous_mb(pids: list[int]) -> float:
    """Memory that belongs to these processes alone and to no file."""
    return _memory_mb(pids, "RssAnon:")


def resident_mb(pids: list[int]) -> float:
    """What of these processes is in memory, pages of files that they map included."""
    return _memory_mb(pids, "VmRSS:")


def descriptors(pids: list[int]) -> int:
    """Open files, sockets and pipes."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def threads_cpu_s(pid: int) -> float:
    """Processor time of a process's threads, to the nanosecond; children are not counted."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def process_cpu_s(pid: int) -> float:
    """User and system time of a process and of those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and those it started, theirs included."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    below = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [pid, *(one for child in below for one in family(child))]


def _memory_mb(pids: list[int], kind: str) -> float:
    kilobytes = 0
    for pid in pids:
        for line in _status(pid):
            if line.startswith(kind):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


def _status(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    commit = _first_line(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    changed = _first_line(["git", "-C", str(ROOT), "status", "--porcelain", "--", "src"])
    return commit + ("+changes" if changed else "")


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return "?"
    return next(iter((done.stdout + done.stderr).splitlines()), "").strip()
