"""An asyncio event loop that never waits: it jumps to the next timer.

What makes a run repeatable: everything happens in the order of `virtual_tasks`, there are no
sockets and no threads, and a wait that nothing can end fails at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import heapq
import io
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

from sparrowmq.testing.errors import Deadlock, Spinning, TimeLimitReached, UnhandledError
from sparrowmq.testing.virtual_tasks import SimFuture, SimTask, VirtualHandle, VirtualTimer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SPIN_LIMIT = 100_000
"""Rounds of the loop in one virtual instant before it counts as spinning."""


class _Reached(Exception):
    """Leaves the loop at once, before anything else runs."""


class JumpingLoop(asyncio.BaseEventLoop):
    """A loop whose `time()` starts at 0 and moves only when nothing is left to do.

    Raises `Deadlock`, `TimeLimitReached` or `Spinning` out of `run_until_complete` and friends,
    and `UnhandledError` as soon as a callback fails. `limit_s` is the latest virtual time.
    """

    # What this class uses of BaseEventLoop beyond its public methods, as of Python 3.11 to 3.14.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float
    if TYPE_CHECKING:

        def _check_closed(self) -> None: ...

    def __init__(self, *, limit_s: float = math.inf) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._awaited: Callable[[], bool] | None = None
        self._now = 0.0
        self._numbers = 0
        self._rounds_now = 0
        self._unhandled: list[dict[str, Any]] = []
        self._selector = self  # BaseEventLoop waits in `self._selector.select`
        self._clock_resolution = math.ulp(0.0)
        self.set_exception_handler(lambda _loop, context: self._unhandled.append(context))

    # Time

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[NoReturn]:
        """Called by every round of the loop in place of waiting for sockets."""
        self._raise_unhandled()
        if self._awaited is not None and self._awaited():
            raise _Reached
        if timeout is None:
            raise Deadlock(f"everybody waits, no timer is set\n{self.describe()}")
        if timeout > 0:
            self._jump_to(self._scheduled[0].when())
        self._rounds_now += 1
        if self._rounds_now > SPIN_LIMIT:
            self._rounds_now = 0
            raise Spinning(f"{SPIN_LIMIT} rounds without time passing\n{self.describe()}")
        return []

    def _jump_to(self, when: float) -> None:
        if when > self.limit_s:
            raise TimeLimitReached(f"{self.limit_s} s of virtual time passed\n{self.describe()}")
        self._now = when
        self._rounds_now = 0
        # The next float: exactly the timers up to now run, none early.
        self._clock_resolution = math.ulp(when)

    def advance(self, seconds: float) -> None:
        """Run everything of the next `seconds`, then stop with the clock exactly there."""
        done: asyncio.Future[None] = self.create_future()
        self.call_later(seconds, done.set_result, None, context=Context())
        self.run_until_complete(done)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run until the condition holds; it is checked before every round and every jump."""
        self._awaited = condition
        try:
            self.run_forever()
        except _Reached:
            return
        finally:
            self._awaited = None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing will run before time moves."""
        return not self._ready

    # Callbacks, tasks and futures

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_closed()
        number = self._next_number()
        timer = VirtualTimer(number, when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # BaseEventLoop counts cancelled ones
        return timer

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        handle = VirtualHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(self._next_number(), self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: Any,
    ) -> SimTask[T]:
        self._check_closed()
        return SimTask(
            self._next_number(),
            coro,
            loop=self,
            name=None if name is None else str(name),
            context=copy_context() if context is None else context,
        )

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run the function on the loop, in its next round: there are no threads here."""
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(_settle, future, partial(func, *args))
        return future

    def pending_tasks(self) -> list[SimTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task.number)

    # Failures

    def _raise_unhandled(self) -> None:
        if self._unhandled:
            first = self._unhandled[0]
            self._unhandled = []
            error = first.get("exception")
            detail = ", ".join(f"{key}: {value!r}" for key, value in first.items())
            raise UnhandledError(detail) from error

    def describe(self) -> str:
        """Every pending task, its process and the lines where it waits, for error texts."""
        lines = [f"at {self._now:.6f} s, pending tasks:"]
        for task in self.pending_tasks():
            place = io.StringIO()
            task.print_stack(limit=3, file=place)
            stack = place.getvalue().splitlines()[1:]
            lines += [f"  {task.get_name()} in {task.process}", *(f"    {line}" for line in stack)]
        return "\n".join(lines)

    # What BaseEventLoop requires of a subclass

    def _process_events(self, event_list: list[NoReturn]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _settle(future: asyncio.Future[T], function: Callable[[], T]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
