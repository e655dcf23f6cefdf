"""Where blocking work runs: threads in production, inline in simulation."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NOT_PASSED_ON = (
    StopIteration,  # a future does not accept it: the caller would wait forever
    CancelledError,  # the caller would mistake it for the cancellation of its own task
    asyncio.CancelledError,
    GeneratorExit,
    SystemExit,  # these two would end the loop and all other work with it
    KeyboardInterrupt,
)


def contained(function: Callable[[], T]) -> T:
    """Call a function in a thread so that its exceptions reach only its caller."""
    try:
        return function()
    except _NOT_PASSED_ON as error:
        raise RuntimeError(f"a function in a thread raised {error!r}") from error


class WorkersClosed(Exception):
    """No new work is accepted: `close` was called, or the interpreter is exiting."""


class Workers(Protocol):
    """Runs plain functions that may block, without stopping the loop."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; its exceptions are raised here."""
        ...

    def close(self) -> None:
        """Let running functions finish, take no more."""
        ...


class ThreadWorkers:
    """A separate thread pool, so that one user cannot starve another."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; its exceptions are raised here. Raises WorkersClosed."""
        call = partial(function, *args, **kwargs)
        try:
            begun = self._pool.submit(contained, call)
        except RuntimeError as error:
            raise WorkersClosed(str(error)) from error
        return await asyncio.wrap_future(begun)

    def close(self) -> None:
        """Let running functions finish, take no more."""
        self._pool.shutdown(wait=True)


class InlineWorkers:
    """Runs everything immediately in the caller: deterministic, for simulation."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; its exceptions are raised here, as those of a thread are."""
        return contained(partial(function, *args, **kwargs))

    def close(self) -> None:
        """Nothing to end."""
