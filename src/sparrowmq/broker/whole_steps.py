"""Steps that are not cancelled in their middle, such as saving a file beside the loop.

A thread goes on when who waits for it is cancelled: the last save of a stopping broker would write
the same file at the same time, and what the step had taken in hand would be saved by nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeAlias

Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What a broker runs for ever. A function: a coroutine that is cancelled before its first step
would complain that nobody awaited it."""


class WholeSteps:
    """`async with` surrounds a step; whoever is about to cancel calls `end` before."""

    def __init__(self) -> None:
        self._running = 0
        self._is_over = False
        self._ended = asyncio.Event()

    async def __aenter__(self) -> None:
        if self._is_over:
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        self._running += 1

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()

    async def end(self) -> None:
        """Let nobody begin a step any more; return when none runs."""
        self._is_over = True
        if self._running:
            self._ended.clear()
            await self._ended.wait()


@asynccontextmanager
async def running(loops: Iterable[Loop], steps: WholeSteps) -> AsyncIterator[None]:
    """Run these while the block runs. Whatever ends it, nobody is cancelled in a step.

    Raises what one of them raised, as a group.
    """
    # A group of their own: one that others are in would cancel them when somebody else fails.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_running(loop, steps)) for loop in loops]
        try:
            yield
        finally:
            await steps.end()
            for task in tasks:
                task.cancel()


async def _running(loop: Loop, steps: WholeSteps) -> None:
    try:
        await loop()
    except Exception:
        await steps.end()  # the group cancels all the others as soon as this goes on
        raise
