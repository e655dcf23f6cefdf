"""A broker for campaigns: its clock can be set, its loop is watched, and it may have a bug.

Next to the data directory, with its name as a prefix:

```
<data>.clock     8 bytes: nanoseconds by which the clock was set forward
<data>.stalls    callbacks that held the loop, as JSON lines
<data>.planted   the kind of fault whose planted bug this broker has
```
"""

import mmap
import struct
import sys
import time
from pathlib import Path

STEP = struct.Struct("<q")
CLOCK, STALLS, PLANTED_BUG = ".clock", ".stalls", ".planted"


def beside(data: Path, suffix: str) -> Path:
    """One of the files above."""
    return data.with_name(data.name + suffix)


def _set_clock(path: Path) -> None:
    with path.open("rb") as file:
        step = mmap.mmap(file.fileno(), STEP.size, access=mmap.ACCESS_READ)
    real = time.time_ns
    setattr(time, "time_ns", lambda: real() + STEP.unpack_from(step)[0])  # noqa: B010


def _plant(path: Path) -> None:
    if path.exists():
        from tests.faults.campaign_planted import PLANTED

        PLANTED[path.read_text()].plant(setattr)


def main() -> None:
    """Run the broker that the arguments describe."""
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    _set_clock(beside(data, CLOCK))
    _plant(beside(data, PLANTED_BUG))
    from sparrowmq.testing import loop_watchdog

    loop_watchdog.main(["--stalls", str(beside(data, STALLS)), *sys.argv[1:]])


if __name__ == "__main__":
    main()
