"""Threads for the user's plain functions, of which some never return.

At exit the interpreter waits for functions that are still running, as long as a consumer may use
their results. It does not wait for those that a stop has given up: that could take forever.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from sparrowmq.net.workers import WorkersClosed, contained

P = ParamSpec("P")
T = TypeVar("T")


class _Job(NamedTuple):
    pool: "HandlerThreads"
    """A job holds its pool, so that a pool lives as long as something runs in it."""
    call: Callable[[], Any]
    result: "Future[Any]"


class _Crew:
    """The threads, separate from the pool: they must not keep it alive while they are idle.

    They are daemons, since other threads cannot be given up once they run.
    """

    def __init__(self, most: int, name: str) -> None:
        self.here = threading.local()
        self._most = most
        self._name = name
        self._pid = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._begun = 0
        self._unfinished = 0
        self._is_dismissed = False
        self._is_given_up = False

    def put(self, job: _Job) -> None:
        """Give a job to an idle thread, or to a new one. Raises WorkersClosed."""
        with self._changed:
            if self._is_dismissed:
                raise WorkersClosed("these threads accept no more work")
            self._unfinished += 1
            self._jobs.put(job)
            if self._unfinished > self._begun < self._most:
                self._begun += 1
                name = f"{self._name}_{self._begun}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        self.here.is_one = True
        while (job := self._jobs.get()) is not None:
            self._do(job)
            del job  # it would keep the pool until the next one comes
        self._jobs.put(None)  # for the next thread

    def _do(self, job: _Job) -> None:
        try:
            if job.result.set_running_or_notify_cancel():
                try:
                    job.result.set_result(contained(job.call))
                except BaseException as error:
                    job.result.set_exception(error)
        finally:
            with self._changed:
                self._unfinished -= 1
                self._changed.notify_all()

    def finish(self) -> None:
        """Take no more jobs; return when all are done or given up. A forked child has only copies
        of the threads, which do nothing."""
        if self._pid == os.getpid():
            with self._changed:
                self._dismiss()
                self._changed.wait_for(lambda: not self._unfinished or self._is_given_up)

    def give_up(self) -> None:
        """Take no more jobs, and do not wait for running ones."""
        with self._changed:
            self._dismiss()
            self._is_given_up = True
            self._changed.notify_all()

    def _dismiss(self) -> None:
        if not self._is_dismissed:
            self._is_dismissed = True
            self._jobs.put(None)  # after all jobs


class HandlerThreads:
    """Workers for the functions of one user, with a limit on how many run at once."""

    def __init__(self, threads: int, name: str) -> None:
        self._crew = _Crew(threads, name)
        # Called when nothing refers to the pool any longer, and when the interpreter exits
        self._finish = weakref.finalize(self, self._crew.finish)

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in one of these threads."""
        return hasattr(self._crew.here, "is_one")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function and return its result; its exceptions are raised here. Raises
        WorkersClosed."""
        result: Future[T] = Future()
        self._crew.put(_Job(self, partial(function, *args, **kwargs), result))
        return await asyncio.wrap_future(result)

    def close(self) -> None:
        """Let running functions finish, take no more."""
        self._crew.finish()

    def abandon(self) -> None:
        """Take no more jobs and wait for nothing: running functions continue until they return or
        the process ends, whichever comes first."""
        self._crew.give_up()
