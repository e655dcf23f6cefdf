"""Alarms: sleep until the next message is due, and wake early if another is due sooner.

Delay levels, timers and transaction checks all run the same loop: deliver what is due, ask when the
next is due, sleep until then. A message stored meanwhile may be due sooner than the loop planned,
so the code that stores it also announces its due time to the loop's alarm.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sparrowmq.broker.broker import Broker
from sparrowmq.clock import Clock
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.errors import StoreStopped

_LONGEST_S = 1.0
"""Sleep no longer than this: the clock may be set forward meanwhile."""
_SHORTEST_S = 0.001
TRY_AGAIN_MS = 1_000
"""How soon a round that found the disk full is tried again."""


class Alarm:
    """Where one loop sleeps. Times are milliseconds of one clock.

    The loop calls `start_round` before it looks for what is due and `wait` afterwards. What
    `due_at` announces in between counts: the loop may already have looked there.
    """

    def __init__(self) -> None:
        self._earlier = asyncio.Event()
        self.planned_ms = sys.maxsize
        """When the loop wakes up; announcing something later changes nothing."""

    def due_at(self, due_ms: int) -> None:
        """A new message is due at `due_ms`: wake up if that is before the planned time."""
        if due_ms < self.planned_ms:
            self.planned_ms = due_ms
            self._earlier.set()

    def start_round(self) -> None:
        """From now on everything that `due_at` announces counts."""
        self.planned_ms = sys.maxsize

    async def wait(self, due_ms: int | None, now_ms: int) -> None:
        """Sleep until `due_ms` or what `due_at` announced since `start_round`, at most a second;
        with neither, until something is announced."""
        if due_ms is not None:
            self.planned_ms = min(due_ms, self.planned_ms)
        self._earlier.clear()
        wait_s = None
        if self.planned_ms != sys.maxsize:
            wait_s = min(max((self.planned_ms - now_ms) / 1000, _SHORTEST_S), _LONGEST_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._earlier.wait()


async def repeat_rounds(
    broker: Broker,
    alarm: Alarm,
    deliver_due: Callable[[Broker], Awaitable[int | None]],
    trouble: str,
    clock: Clock,
) -> None:
    """Call `deliver_due`, which returns when the next message is due, until the store is stopped.

    A round that finds the disk full is logged as `trouble` and tried again soon. Times are those of
    `clock`.
    """
    while True:
        alarm.start_round()
        try:
            due_ms = await deliver_due(broker)
        except DiskFull as error:
            broker.log.warning("%s: %s", trouble, error)
            due_ms = clock() + TRY_AGAIN_MS
        except StoreStopped:
            return  # the broker is about to stop
        await alarm.wait(due_ms, clock())
