"""The only module that asks the operating system for the time.

Everything else is passed a `Clock`, so that tests and simulations control the time.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""A function without arguments that returns milliseconds."""
Zone: TypeAlias = Callable[[int], int]
"""Returns by how many milliseconds local time is ahead of UTC at a moment, which is given in
milliseconds since 1970. It differs between summer and winter."""


def system_clock() -> int:
    """Milliseconds since 1970, as RocketMQ stamps messages; jumps when the time is set."""
    return time.time_ns() // 1_000_000


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stops while a machine sleeps; this one does not."""


def monotonic_clock() -> int:
    """Milliseconds since an arbitrary moment; never set, so it measures intervals."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


def boot_id() -> str:
    """An id that is the same, in all processes, as long as `monotonic_clock` continues; empty if
    unknown.

    It changes when the machine restarts, and differs in a container with its own time namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


def cpu_clock() -> int:
    """Milliseconds of CPU time used so far: it grows when busy, not when starved."""
    return time.process_time_ns() // 1_000_000


_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_000
"""The first and the last second of Python's calendar."""


def date_of(moment_ms: int) -> datetime:
    """A moment as a date in UTC. Clients may send any number: what is outside the years 1 to 9999
    becomes the first or last second of them."""
    return datetime.fromtimestamp(min(max(moment_ms, _FIRST_MS), _LAST_MS) / 1000, UTC)


def utc_text(moment: datetime) -> str:
    """A moment with a zone, as commands and errors write it: `2026-11-15T13:30:00.250Z`."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


def utc(moment_ms: int) -> int:
    """The zone whose local time is UTC."""
    return 0


def local_zone(moment_ms: int) -> int:
    """The zone of this host, or the one named by TZ in the environment."""
    return time.localtime(moment_ms // 1000).tm_gmtoff * 1000
