"""A TCP proxy that breaks connections: partitions, delay, half-open peers, resets, slow closes.

```
async with FaultyProxy("127.0.0.1", broker_port) as proxy:
    ... connect to proxy.port ...
    proxy.partition()        # bytes stop, connections stay open
    proxy.heal()             # and continue where they stopped
```
"""

import asyncio
import contextlib
import socket
import struct
from enum import Flag, auto
from types import TracebackType

_CHUNK = 64 * 1024


class Direction(Flag):
    """Which way bytes go."""

    TO_SERVER = auto()
    TO_CLIENT = auto()
    BOTH = TO_SERVER | TO_CLIENT


class FaultyProxy:
    """Forwards connections to one server until told otherwise."""

    def __init__(self, host: str, port: int, listen_port: int = 0) -> None:
        self._target = host, port
        self.port = listen_port
        """Where it listens; 0 takes a free one."""
        self.delay_s = 0.0
        """Each piece of data waits so long."""
        self.close_delay_s = 0.0
        """A peer's end of stream is passed on so much later."""
        self.accepted = 0
        self._open: dict[Direction, asyncio.Event] = {
            Direction.TO_SERVER: asyncio.Event(),
            Direction.TO_CLIENT: asyncio.Event(),
        }
        self._writers: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self.heal()

    async def __aenter__(self) -> "FaultyProxy":
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self.heal()
        self.reset()
        await self._tasks.__aexit__(kind, error, trace)
        await self._server.wait_closed()

    def partition(self, direction: Direction = Direction.BOTH) -> None:
        """Hold back bytes; connections stay open and no peer notices. One direction: half-open."""
        for way, event in self._open.items():
            if way in direction:
                event.clear()

    def heal(self) -> None:
        """Release held bytes, accept connections again."""
        self._refuses = False
        for event in self._open.values():
            event.set()

    def refuse(self) -> None:
        """Reset every connection from now on as soon as it comes."""
        self._refuses = True

    def reset(self) -> None:
        """Reset all connections, on both sides, in the middle of whatever they were saying."""
        for writer in list(self._writers):
            _reset(writer)
        self._writers.clear()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refuses:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, far_writer}
        self._tasks.create_task(self._pump(reader, far_writer, Direction.TO_SERVER))
        self._tasks.create_task(self._pump(far_reader, writer, Direction.TO_CLIENT))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()
            await self._open[way].wait()
            if self.close_delay_s:
                await asyncio.sleep(self.close_delay_s)
            if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()
        if reader.at_eof() and writer.is_closing():
            self._writers.discard(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            # Lingering for no time makes close() send RST instead of FIN.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
