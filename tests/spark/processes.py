"""Which process started which: Java starts Spark's Python daemons, and they fork workers."""

from pathlib import Path


def parent_of(pid: int) -> int:
    """Raises OSError if there is no such process any more."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def words_of(pid: int) -> list[str]:
    """How a process was started; empty if there is no such process any more."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []
