"""The console of `sparrowmq up`: a separate process beside the servers.

Its socket is opened before the ready line, which names the address; the process starts after that.
A browser that connects earlier waits in the socket's queue. The servers never fail because of a
console: one that cannot start, or ends, only causes a warning.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket

from sparrowmq.cli.settings.settings import PREFIX
from sparrowmq.console.sockets import open_listener, url_of

DEFAULT_PORT = 9880
_HOST = "127.0.0.1"
_STOP_S = 5.0

log = logging.getLogger("sparrowmq.console")


class ConsoleChild:
    """A console that belongs to the servers of this process."""

    def __init__(self, listener: socket, flags: list[str]) -> None:
        self._listener = listener
        self._flags = flags
        self.start = asyncio.Event()
        """Set when the servers are ready."""

    @property
    def text(self) -> str:
        """For the ready line."""
        return f", console {url_of(_HOST, self._listener.getsockname()[1])}"

    @asynccontextmanager
    async def beside(self, name_server: str, state: Path) -> AsyncIterator[None]:
        """Run the console while the block runs, from `start` on."""
        # Closed here too: a task that is cancelled before its first step closes nothing.
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._run(name_server, state))
            try:
                yield
            finally:
                running.cancel()
                self._listener.close()

    async def _run(self, name_server: str, state: Path) -> None:
        with self._listener:
            await self.start.wait()
            number = self._listener.fileno()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sparrowmq", "console", "--fd", str(number)),
                *("--name-servers", name_server, "--state", str(state), "--with-parent"),
                *self._flags,
                env={
                    name: text for name, text in os.environ.items() if not name.startswith(PREFIX)
                },
                pass_fds=(number,),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
            )
        try:
            code = await process.wait()
            log.warning("the console ended with code %d; the servers continue without it", code)
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    # No signal: the terminal sends Ctrl-C to both, and a second signal would cut its end short.
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def open_child(port: int, *, as_json: bool) -> ConsoleChild | None:
    """The console of `up` on this port or the next free one; None, with a warning, if there is
    none."""
    try:
        listener = open_listener(_HOST, port, or_next=True)
    except OSError as error:
        log.warning(
            "no console on port %d or the next ones: %s; --console-port chooses another,"
            " --no-console none",
            port,
            error.strerror or error,
        )
        return None
    return ConsoleChild(listener, ["--json"] * as_json)
