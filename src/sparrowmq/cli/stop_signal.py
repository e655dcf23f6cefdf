"""Being told to stop: by SIGTERM, by Ctrl-C, or by a parent that ends."""

import asyncio
import logging
import os
import signal
import sys

log = logging.getLogger("sparrowmq")


class StopSignal(asyncio.Event):
    """Set when it is time to stop; `number` is the signal that said so, 0 where none did."""

    number = 0


async def stop_signal(*, with_parent: bool = False) -> StopSignal:
    """Set by SIGTERM or SIGINT; a second one ends the process at once.

    Made before anything starts: whoever reads the ready line may signal in the next moment.
    """
    loop = asyncio.get_running_loop()
    stopping = StopSignal()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(130)
        log.info("stopping")
        stopping.number = number
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop, number)
        except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt
            break
    if with_parent:
        await loop.connect_read_pipe(lambda: _UntilClosed(stopping), sys.stdin)
    return stopping


class _UntilClosed(asyncio.Protocol):
    """Watches a pipe whose other end a parent holds for as long as it lives."""

    def __init__(self, closed: asyncio.Event) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
