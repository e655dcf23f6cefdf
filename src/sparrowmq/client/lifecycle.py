"""The lifecycle of clients, producers and consumers: opened by `async with`, started, stopped once.

Starts and stops come from any task, also at the same time: a signal handler stops what a block is
about to stop, or what is still starting.

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
    """Base of what `async with` opens and closes."""

    async def _open(self) -> None:
        """What the beginning of a block does."""
        raise NotImplementedError

    async def _close(self, error: BaseException | None) -> None:
        """What the end of a block does, which `error` left, if anything was raised."""
        await self.stop()

    async def stop(self) -> None:
        """Stop what was opened; does nothing when nothing was."""
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
    """Base of what can be started and stopped. What did not open to its end is stopped as well."""

    def __init__(self) -> None:
        self._starting = InProgress()
        self._stopped: asyncio.Event | None = None
        """While it is being stopped: set at the end of that."""

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except BaseException:
            await self.stop()
            raise

    async def _stop_once(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop it. A caller that comes while another stops it waits for the end of that, and cuts
        off nothing that the other still waits for."""
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
        """Return when nothing is stopping it any more."""
        if self._stopped is not None:
            await self._stopped.wait()
