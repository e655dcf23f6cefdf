"""Waiting for the next thing that is due, and being woken when something is due earlier."""

import asyncio
import sys
from contextlib import suppress

_LONGEST_S = 1.0
"""The clock may be set forward while nobody looks: look again after this long."""
_SHORTEST_S = 0.001


class Alarm:
    """Where one loop sleeps. Times are the broker's clock, in milliseconds."""

    def __init__(self) -> None:
        self._earlier = asyncio.Event()
        self.planned_ms = sys.maxsize
        """`due_at` changes nothing for what is due later."""

    def due_at(self, due_ms: int) -> None:
        """Something new is due then: wake up if that is before the planned time."""
        if due_ms < self.planned_ms:
            self.planned_ms = due_ms
            self._earlier.set()

    async def wait(self, due_ms: int | None, now_ms: int) -> None:
        """Sleep until `due_ms`, at most a second; with None until something is due."""
        self.planned_ms = sys.maxsize if due_ms is None else due_ms
        self._earlier.clear()
        wait_s = _LONGEST_S
        if due_ms is not None:
            wait_s = min(max((due_ms - now_ms) / 1000, _SHORTEST_S), _LONGEST_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s if due_ms is not None else None):
                await self._earlier.wait()
