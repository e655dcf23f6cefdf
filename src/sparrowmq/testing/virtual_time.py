"""The event loop of a simulation: virtual time, processes that die, a clean end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import suppress
from inspect import CORO_CLOSED, getcoroutinestate
from types import CoroutineType
from typing import Any, TypeVar

from sparrowmq.testing.errors import SimulationStuck, UnhandledError
from sparrowmq.testing.jumping_loop import JumpingLoop
from sparrowmq.testing.process import Process
from sparrowmq.testing.virtual_tasks import SimTask

T = TypeVar("T")

CLEANUP_S = 60.0
"""Virtual time that cancelled tasks may take to end when the loop closes."""


class VirtualLoop(JumpingLoop):
    """A loop in virtual time whose tasks belong to processes. `close` raises unnoticed failures."""

    def __init__(self, *, limit_s: float = math.inf) -> None:
        super().__init__(limit_s=limit_s)
        self._graveyard: list[SimTask[Any]] = []
        self._watched: list[SimTask[Any]] = []

    def watch(self, task: SimTask[T]) -> SimTask[T]:
        """Fail at the end if the task failed and its result was not retrieved by then."""
        self._watched.append(task)
        return task

    # Processes

    def resume(self, process: Process) -> None:
        self._ready.extend(process.resume())

    def kill(self, process: Process) -> None:
        """Freeze the process for good: its tasks stay, unfinished, until the loop closes."""
        process.kill()
        for task in self.pending_tasks():
            if task.process is process:
                self._graveyard.append(task)

    # The end

    def close(self) -> None:
        """Cancel what still runs, lay dead and stopped processes to rest, then close.

        Raises `SimulationStuck` if a task of a live process does not end although it was cancelled,
        and `UnhandledError` for a failure that went unnoticed.
        """
        if self.is_closed():
            return
        for task in self.pending_tasks():
            if task.process is not None and not task.process.is_running:
                self.kill(task.process)
        try:
            self._end([task for task in self.pending_tasks() if task not in self._graveyard])
            self._report_failures()
        finally:
            self._lay_to_rest()
            super().close()

    def _end(self, tasks: list[SimTask[Any]]) -> None:
        """Cancel tasks and wait for them: first each process's initial tasks, like asyncio.run, so
        that the tasks they own are still there while they clean up."""
        for together in (set(tasks).intersection(self._watched), set(tasks)):
            self.limit_s = max(self.limit_s, self._now + CLEANUP_S)
            pending = [task for task in tasks if task in together and not task.done()]
            for task in pending:
                task.cancel("the simulation ends")
            if pending:
                self.run_until_complete(asyncio.gather(*pending, return_exceptions=True))

    def _report_failures(self) -> None:
        for task in self._watched:
            if task.done() and task._log_traceback:
                self._unhandled.append({"task": task, "exception": task.exception()})
        self._raise_unhandled()

    def _lay_to_rest(self) -> None:
        """End the coroutines that death left suspended.

        Python runs their cleanup blocks in any case, at the latest when it collects them as
        garbage; on the loop, after all others, they do no harm.
        """
        ghosts = [task for task in self._graveyard if not task.done()]
        for task in ghosts:
            if task.process is not None:
                task.process.haunt()
        with suppress(SimulationStuck, UnhandledError):
            self._end(ghosts)
        with suppress(SimulationStuck, UnhandledError):
            self.run_until_complete(self.shutdown_asyncgens())
        for task in self.pending_tasks():
            _bury(task)
        self._unhandled.clear()


def _bury(task: SimTask[Any]) -> None:
    """End a coroutine that refuses cancellation, so that nothing is left to complain about."""
    # asyncio complains about a pending task without any reference to it
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    for _ in range(100):  # each close passes at least one `await` of a cleanup block
        # From the inside: a coroutine that awaits one which refuses to end lets go of it, and
        # Python would report what the rest of its cleanup raises.
        awaited = [each for each in _await_chain(task.get_coro()) if not _is_closed(each)]
        if not awaited:
            return
        # a task group makes a BaseExceptionGroup of the GeneratorExit
        with suppress(BaseException):
            awaited[-1].close()


def _await_chain(outermost: object) -> Iterator[CoroutineType[Any, Any, Any]]:
    """A coroutine, the one it waits for, and so on."""
    each = outermost
    while isinstance(each, CoroutineType):
        yield each
        each = each.cr_await


def _is_closed(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    return getcoroutinestate(coroutine) == CORO_CLOSED
