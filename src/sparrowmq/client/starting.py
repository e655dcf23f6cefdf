"""Starts that are under way: a stop that comes meanwhile would find nothing to stop yet."""

import asyncio
from types import TracebackType


class Starting:
    """`with` surrounds a start. A stop waits for `until_over`, or what it stops would go on."""

    def __init__(self) -> None:
        self._running = 0
        self._over = asyncio.Event()
        self._over.set()

    def __enter__(self) -> None:
        self._running += 1
        self._over.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running -= 1
        if not self._running:
            self._over.set()

    async def until_over(self) -> None:
        """Return when nobody is starting it."""
        await self._over.wait()
