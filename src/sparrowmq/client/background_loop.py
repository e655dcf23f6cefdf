"""One event loop in a background thread, for programs that do not use asyncio.

There is one per process. A forked child must not touch its parent's loop or connections: it gets
its own loop when it first needs one.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("sparrowmq.client")


class BackgroundLoop:
    """A loop that runs in a daemon thread until the process ends."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._serve, name="sparrowmq", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        is_over = False
        while not is_over:
            try:
                self._loop.run_forever()
                is_over = True
            except (SystemExit, KeyboardInterrupt) as error:
                # Everything without asyncio runs here: what one handler raised must not end it.
                log.error("%r ended a task in the background, not the program", error)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it. Ctrl-C cancels it. Not from the loop's thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking call inside the background loop would wait for itself")
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], None]) -> None:
        """Run a plain function there, soon."""
        self._loop.call_soon_threadsafe(function)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_ENDS_AT_WORK = (
    "the program ends while the %s runs in the background: it no longer consumes, and"
    " messages in work come again. To consume for ever call run(), or wait inside of the `with`"
    " block; before the end of a program call stop()"
)


class ProcessLoop:
    """The process's background loop, created again after a fork."""

    def __init__(self) -> None:
        self._at_work: dict[object, str] = {}
        """The objects that call handlers in the background until they are stopped, with names."""
        self.lock = threading.RLock()
        """Held while something is started: concurrent threads must not start it twice."""
        self._loop: BackgroundLoop | None = None
        # A lock that some thread held while another forked would stay locked in the child for ever
        if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.lock = threading.RLock()
        self._loop = None
        self._at_work = {}

    def works(self, worker: object, name: str) -> None:
        """`worker` starts calling handlers in the background, until `rests`.

        It ends with the program, because the thread is a daemon: a non-daemon thread would keep a
        program alive whose main thread has failed. But a script whose last line starts a consumer
        seems to do nothing, so that is logged.
        """
        if not self._at_work:
            atexit.unregister(self._report_work)
            atexit.register(self._report_work)
        self._at_work[worker] = name

    def rests(self, worker: object) -> None:
        """`worker` was stopped."""
        self._at_work.pop(worker, None)

    def _report_work(self) -> None:
        for name in self._at_work.values():
            log.warning(_ENDS_AT_WORK, name)

    def get(self) -> BackgroundLoop:
        """The loop of this process."""
        with self.lock:
            if self._loop is None:
                self._loop = BackgroundLoop()
            return self._loop


loop_of_process = ProcessLoop()
"""One for the process: facades share its thread."""
