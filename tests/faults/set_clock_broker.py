"""A broker whose clock a test sets: it shows the true time and what the file `clock` adds to it.

The file is next to the data directory and holds milliseconds, 8 bytes. Everything else in
the process, and so all that measures intervals, has the real clocks. With `--stalls FILE` before
the command its loop is watched.
"""

import mmap
import sys
from pathlib import Path

from sparrowmq.cli import serve
from sparrowmq.cli.main import main
from sparrowmq.clock import system_clock
from sparrowmq.testing import loop_watchdog

CLOCK_FILE = "clock"


class SetClock:
    """The file, of the one who sets it and of the one who looks."""

    def __init__(self, directory: Path) -> None:
        path = directory / CLOCK_FILE
        if not path.exists():
            path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._ahead = mmap.mmap(file.fileno(), 8)

    def __call__(self) -> int:
        return system_clock() + int.from_bytes(self._ahead[:], "big", signed=True)

    def set(self, by_ms: int) -> None:
        """Forward, or back."""
        ahead_ms = int.from_bytes(self._ahead[:], "big", signed=True) + by_ms
        self._ahead[:] = ahead_ms.to_bytes(8, "big", signed=True)


if __name__ == "__main__":
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    setattr(serve, "system_clock", SetClock(data.parent))  # noqa: B010 - mypy forbids assigning
    if "--stalls" in sys.argv:
        loop_watchdog.main(sys.argv[1:])
    else:
        main()
