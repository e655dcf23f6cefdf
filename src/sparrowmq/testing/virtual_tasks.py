"""Tasks, futures and callbacks of the virtual loop: in the same order in every run.

asyncio keeps tasks in sets, whose order depends on memory addresses, and timers of the same
instant in a heap, whose order is undefined. Here both follow the order of creation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from sparrowmq.testing.process import PROCESS

T = TypeVar("T")


class SimFuture(asyncio.Future[T]):
    """A future with a repeatable hash."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number  # first: the hash is needed while the base class sets up
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
    """A task with a repeatable hash that knows its process."""

    def __init__(
        self,
        number: int,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: Context,
    ) -> None:
        self.number = number
        self.process = context.get(PROCESS)
        super().__init__(coro, loop=loop, name=name or f"task-{number}", context=context)

    def __hash__(self) -> int:
        return self.number


class VirtualHandle(asyncio.Handle):
    """A callback that runs only while its process does."""

    __slots__ = ()
    _context: Context

    def _run(self) -> None:
        if _may_run(self, self._context):
            super()._run()


class VirtualTimer(asyncio.TimerHandle):
    """The same for a timer; those of one instant run in the order they were set."""

    __slots__ = ("_order",)
    _context: Context
    _order: tuple[float, int]

    def __init__(
        self,
        number: int,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._order = (when, number)

    def __lt__(self, other: VirtualTimer) -> bool:  # type: ignore[override]  # has no others
        return self._order < other._order

    def _run(self) -> None:
        if _may_run(self, self._context):
            super()._run()


def _may_run(handle: asyncio.Handle, context: Context) -> bool:
    process = context.get(PROCESS)
    if process is None or process.is_running:
        return True
    process.hold(handle)
    return False
