"""Where blocking work runs: threads in production, inline in simulation."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    """Runs plain functions that may block, without stopping the loop."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; its exceptions are raised here."""
        ...

    def close(self) -> None:
        """Let running functions finish, take no more."""
        ...


class ThreadWorkers:
    """A thread pool of its own, so that one user cannot starve another."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; its exceptions are raised here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let running functions finish, take no more."""
        self._pool.shutdown(wait=True)


class InlineWorkers:
    """Runs everything at once in the caller: deterministic, for simulation."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; its exceptions are raised here."""
        return function(*args, **kwargs)

    def close(self) -> None:
        """Nothing to end."""
