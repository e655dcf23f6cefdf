"""What `async with` means for producers and consumers: open now, stop in the end."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

# Stopping once: a signal handler and the end of a block may stop the same thing together.


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


# Starts that are under way: a stop that comes meanwhile would find nothing to stop yet.


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


class OpenBlock:
    """Something that is opened by a block. What did not open to its end is stopped as well."""

    async def _open(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop what was opened; does nothing when nothing was."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
