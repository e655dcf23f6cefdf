"""Requests to stop: SIGTERM, Ctrl-C, or the end of the parent process.

Servers and consumers wait for a `StopSignal`. Every other command ends with KeyboardInterrupt, and
SIGTERM is made to do the same: files are closed and Spark is stopped, as after Ctrl-C. A command
that is ended within `changing` says that it did not end, and what to do next; others are silent.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPED_BY = "sparrowmq.stopped_by"
"""The key in a command's context for the number of the signal that ended it, if not SIGINT."""

RUN_AGAIN = "what was changed stays changed; run it again, which finishes it"

log = logging.getLogger("sparrowmq")


class StopSignal(asyncio.Event):
    """Set when it is time to stop; `number` is the signal that caused it, 0 if none did."""

    number = 0


async def stop_signal(*, with_parent: bool = False) -> StopSignal:
    """Set by SIGTERM or SIGINT; a second one ends the process at once.

    Installed before anything starts: a script may send a signal as soon as it reads the ready line.
    """
    loop = asyncio.get_running_loop()
    stopping = StopSignal()

    def stop(number: int) -> None:
        if stopping.is_set():
            log.warning(
                "ending at once: a second signal, %s; the next start recovers", _name(number)
            )
            os._exit(128 + number)
        log.info(
            "stopping: %s was received; a second signal ends the process at once", _name(number)
        )
        stopping.number = number
        stopping.set()

    # Closing a terminal sends SIGHUP.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        try:
            loop.add_signal_handler(number, stop, number)
        except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt
            break
    if with_parent:
        await loop.connect_read_pipe(lambda: _UntilClosed(stopping), sys.stdin)
    return stopping


def _name(number: int) -> str:
    return signal.Signals(number).name


class _UntilClosed(asyncio.Protocol):
    """Watches a pipe whose other end the parent process holds open as long as it lives."""

    def __init__(self, closed: asyncio.Event) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.is_set():
            log.info("stopping: standard input was closed, the parent process has ended")
        self._closed.set()


@contextmanager
def sigterm_like_ctrl_c(notes: MutableMapping[str, Any]) -> Iterator[None]:
    """While the block runs, SIGTERM does what SIGINT does; `notes` tells the two apart.

    It calls the current handler of SIGINT: asyncio cancels the main task, Spark its jobs.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        notes[STOPPED_BY] = number
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # ignored, as shells do for commands in the background
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not the main thread, which alone may handle signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def changing(next_step: Callable[[], str] = lambda: RUN_AGAIN) -> Iterator[None]:
    """Around work that changes something: if a signal ends it, the command reports that.

    `next_step` says what is left behind and what to do; "" if the command says so itself.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if text := next_step():
            stop.add_note(f"stopped before it ended: {text}")
        raise


@contextmanager
def signals_kept() -> Iterator[None]:
    """Hold back SIGTERM and SIGINT while the block runs, and handle them when it ends.

    For a step of a few seconds that leaves something behind if interrupted.
    """
    kept: list[int] = []
    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda found, _: kept.append(found))
    except ValueError:  # not the main thread, which alone may handle signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for found in kept[:1]:
            signal.raise_signal(found)
