"""The only place that asks the operating system for the time.

Everything else is handed a `Clock`, so that tests and simulations decide what time it is.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""A function without arguments that returns milliseconds."""
Zone: TypeAlias = Callable[[int], int]
"""By how many milliseconds local time is ahead of UTC at a moment, given in milliseconds since
1970. It is not the same in summer and in winter."""


def system_clock() -> int:
    """Milliseconds since 1970, as RocketMQ stamps messages; jumps when the time is set."""
    return time.time_ns() // 1_000_000


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while a machine sleeps; this one does not."""


def monotonic_clock() -> int:
    """Milliseconds since an arbitrary moment; never set, so it measures intervals."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


def boot_id() -> str:
    """The same as long as `monotonic_clock` goes on, also in other processes; empty if not known.

    It begins anew when the machine does, and is another one in a container with its own time.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


def cpu_clock() -> int:
    """Milliseconds of processor time used so far: it grows when busy, not when starved."""
    return time.process_time_ns() // 1_000_000


def utc(moment_ms: int) -> int:
    """The zone whose local time is UTC."""
    return 0


def local_zone(moment_ms: int) -> int:
    """The zone of this host, or the one that TZ names in the environment."""
    return time.localtime(moment_ms // 1000).tm_gmtoff * 1000
