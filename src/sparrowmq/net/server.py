"""Listening: accept connections within limits, close idle ones, stop in order."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from ipaddress import ip_address
from typing import Generic, TypeVar

from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Endpoint, Limits
from sparrowmq.net.routes import Routes

C = TypeVar("C")
_SWEEP_S = 5.0
_GOODBYE_S = 3.0
"""How long a closing server waits for peers to read what was written to them."""


class Server(Generic[C]):
    """Serves `routes` with the parts in `context` on any number of ports.

    `tasks` owns the handlers that wait and the sweeper; it belongs to the process.
    """

    def __init__(
        self,
        context: C,
        routes: Routes[C],
        tasks: asyncio.TaskGroup,
        *,
        log: logging.Logger,
        limits: Limits | None = None,
        closed: Callable[[Connection], None] | None = None,
    ) -> None:
        self._closed = closed
        self._log = log
        self._per_host: Counter[str] = Counter()
        self._listeners: list[asyncio.AbstractServer] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._deserted = asyncio.Event()
        self.endpoint: Endpoint[C] = Endpoint(
            context,
            routes,
            tasks,
            limits=limits,
            log=log,
            opened=self._opened,
            closed=self._forget,
        )

    @property
    def connections(self) -> Collection[Connection]:
        """Everybody who is connected now, in the order they came."""
        return self.endpoint.connections

    async def listen(self, host: str, port: int) -> int:
        """Start to listen; returns the port (port 0 takes a free one). Raises OSError."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Connection(self.endpoint), host, port)
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_S, self._sweep)
        return int(listener.sockets[0].getsockname()[1])

    async def close(self, *, goodbye_s: float = _GOODBYE_S) -> None:
        """Stop listening, then end every connection after what is already written.

        A peer that does not read it in time is cut off.
        """
        for listener in self._listeners:
            listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in tuple(self.connections):
            connection.close()
        if self.connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(goodbye_s):
                    await self._deserted.wait()
        for connection in tuple(self.connections):
            connection.abort()
        # The transports tell connection_lost in their next callbacks; one turn lets them.
        await asyncio.sleep(0)
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    def _opened(self, connection: Connection) -> None:
        self._deserted.clear()
        limits = self.endpoint.limits
        host = connection.peer_host
        self._per_host[host] += 1
        too_many = len(self.connections) > limits.max_connections
        from_one = self._per_host[host] > limits.max_connections_per_address
        if too_many or (from_one and not _is_loopback(host)):
            self._log.warning("refusing %s: too many connections", connection.peer)
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        host = connection.peer_host
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]
        if not self.connections:
            self._deserted.set()
        if self._closed is not None:
            self._closed(connection)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now, limits = loop.time(), self.endpoint.limits
        for connection in tuple(self.connections):
            allowed_s = limits.idle_s if connection.frames_read else limits.first_frame_s
            if now - connection.last_read_s > allowed_s:
                self._log.info("closing %s: silent for %g s", connection.peer, allowed_s)
                # Not close: a peer that does not read would keep what it is owed in memory.
                connection.abort()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
