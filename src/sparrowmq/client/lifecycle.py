"""The lifecycle of clients, producers and consumers: opened by `async with`, started, stopped once.

Starts and stops may come from any task, even at the same time: a signal handler may stop what a
block is about to stop, or what is still starting.

start ── `with self._starting` ──▶ running ── stop ──▶ stopped
           │                                    └ a second stop waits for the first
           └ a stop waits for its end: it would find nothing to stop yet, and what it should have
             stopped would run on
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from sparrowmq.net.tasks import InProgress


class Block:
    """Base of objects that `async with` opens and closes."""

    async def _open(self) -> None:
        """Called at the beginning of a block."""
        raise NotImplementedError

    async def _close(self, error: BaseException | None) -> None:
        """Called at the end of a block; `error` is the exception that ended it, if any."""
        await self.stop()

    async def stop(self) -> None:
        """Stop what was opened; does nothing if nothing was."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(error)


class Lifecycle(Block):
    """Base of objects that can be started and stopped. If opening fails halfway, it stops too."""

    def __init__(self) -> None:
        self._starting = InProgress()
        self._stopped: asyncio.Event | None = None
        """Exists while it is being stopped; set when that is done."""

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except BaseException:
            await self.stop()
            raise

    async def _stop_once(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop it. A second caller waits until the first has finished, and does not cut off
        anything that the first is still waiting for."""
        if self._stopped is not None:
            await self._until_stopped()
            return
        stopped = self._stopped = asyncio.Event()
        try:
            await stop()
        finally:
            self._stopped = None
            stopped.set()

    async def _until_stopped(self) -> None:
        """Return when no stop is in progress."""
        if self._stopped is not None:
            await self._stopped.wait()
