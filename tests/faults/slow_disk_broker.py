"""A broker whose disk a test slows down through the file `<data>.sync-ms` beside its directory.

`--planted` is a bug: it waits for its syncs in the loop, and serves no client meanwhile. With
`--stalls FILE` before the command its loop is watched.
"""

import os
import sys
from pathlib import Path

from sparrowmq.cli import serve
from sparrowmq.cli.main import main
from sparrowmq.disk import syncer
from sparrowmq.testing import loop_watchdog
from tests.faults import slow_disk

PLANTED = "--planted"


class LoopSyncer(syncer.InlineSyncer):
    """Stands in for the helper process."""

    def start(self) -> None:
        """Nothing is started."""


def delay_path(data: Path) -> Path:
    """Where the delay of a broker's syncs is."""
    return data.with_name(f"{data.name}.sync-ms")


if __name__ == "__main__":
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    os.environ[slow_disk.VARIABLE] = str(delay_path(data))
    slow_disk.slow_down()
    setattr(syncer, "WORKER", Path(slow_disk.__file__))  # noqa: B010 - mypy forbids assigning
    if PLANTED in sys.argv:
        sys.argv.remove(PLANTED)
        setattr(serve, "ProcessSyncer", LoopSyncer)  # noqa: B010
    if "--stalls" in sys.argv:
        loop_watchdog.main(sys.argv[1:])
    else:
        main()
