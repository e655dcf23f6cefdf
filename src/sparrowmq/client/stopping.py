"""Stopping once: a signal handler and the end of a block may stop the same thing together."""

import asyncio
from collections.abc import Awaitable, Callable


class Stopping:
    """The first one stops; whoever comes meanwhile waits for the end of that, and cuts off nothing
    that it still waits for."""

    def __init__(self) -> None:
        self._over: asyncio.Event | None = None

    async def run(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop, or wait until it is stopped."""
        if self._over is not None:
            await self.until_over()
            return
        over = self._over = asyncio.Event()
        try:
            await stop()
        finally:
            self._over = None
            over.set()

    async def until_over(self) -> None:
        """Return when nobody is stopping it any more."""
        if self._over is not None:
            await self._over.wait()
