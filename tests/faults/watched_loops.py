"""What blocks the loops of server processes in a campaign, as their watchdogs wrote it down.

    with watched() as loops:
        run_the_campaign()          # every broker and name server that it starts is watched
    print(loops, too_long(loops.stalls))

`BrokerProcess` and `NameServerProcess` ask where to write. Two kinds of processes stay unwatched:
those under strace, and servers that are threads of the process that runs Spark's jobs (row 16).
There the interpreter is held by what is not the server's, and the loop waits for it.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from sparrowmq.testing.loop_watchdog import LIMIT_MS

_NOT_SERVING = (
    *(" open_in_role", " open_broker", " broker_running ProcessSyncer.start"),
    " broker_running ProcessSyncer.close",
)
"""Calls that a broker makes before it serves clients, and when it has closed all connections."""


class Watched:
    """What held the loops of the servers that were started in a `with watched():` block."""

    into: ClassVar[Path | None] = None
    """A file for the stalls of all servers that a campaign starts without one."""
    stalls: list[tuple[float, str]]

    def __str__(self) -> str:
        return "".join(too_long(self.stalls)) or f"no callback held a loop for {LIMIT_MS:g} ms"


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """Run every server process of a campaign under the watchdog, on asyncio's own loop."""
    found = Watched()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stalls"
        file.touch()
        Watched.into = file
        try:
            yield found
        finally:
            Watched.into = None
            found.stalls = stalls_of_service(file.read_text("utf-8"))


def stalls_of_service(lines: str) -> list[tuple[float, str]]:
    """Callbacks that blocked the loop, from the watchdog's file, while a broker served clients."""
    found = []
    for line in lines.splitlines():
        stall = json.loads(line)
        calls = "".join(f" {place.rpartition(' ')[2]}" for place in stall["stack"])
        if any(call in calls for call in _NOT_SERVING):
            continue
        own_ms = stall["wall_ms"] - stall["unscheduled_ms"]
        found.append((own_ms, " < ".join(reversed(stall["stack"][-3:]))))
    return found


def too_long(stalls: list[tuple[float, str]]) -> list[str]:
    """One text for all that held a loop for longer than anything may, none for nothing."""
    over = [stall for stall in stalls if stall[0] > LIMIT_MS]
    if not over:
        return []
    longest_ms, where = max(over)
    return [f"{len(over)} stalls over {LIMIT_MS:g} ms, the longest {longest_ms:.0f} ms in {where}"]
