"""Listening: accept connections within limits, close idle ones, stop in order.

A server that is full makes room for a new connection by closing the least useful one:

    never sent a complete frame, the oldest first
    silent for half of `idle_s` and not in use, the longest silent first
    if there is none, the new one is refused

A connection is in use while a handler works for it or a call on it is unanswered, and if the
server's owner says so: a broker protects those with parked pulls, a name server those of registered
brokers.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from ipaddress import ip_address
from itertools import islice
from typing import Generic, TypeVar

from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Endpoint, Limits
from sparrowmq.net.memory_budget import MemoryBudget
from sparrowmq.net.routes import Routes

C = TypeVar("C")
_SWEEP_S = 5.0
_SWEPT_PER_TURN = 128
"""Closing a connection takes 50 µs, with the line in the log: floods fall silent together."""
_LOOK_S = 1.0
"""How often a full server looks for idle connections: in a flood not for every new one."""
_GRACE_S = 3.0
"""How long a closing server waits for peers to read what was written to them."""


class Server(Generic[C]):
    """Serves `routes` with the parts in `context` on any number of ports.

    `tasks` owns the handlers that wait and the sweeper; it belongs to the process. Parts that need
    to know the port are created after `bind` and passed to `serve`; until then `context` is None.
    """

    def __init__(
        self,
        context: C | None,
        routes: Routes[C],
        tasks: asyncio.TaskGroup,
        *,
        log: logging.Logger,
        limits: Limits | None = None,
        closed: Callable[[Connection], None] | None = None,
        is_in_use: Callable[[Connection], bool] | None = None,
    ) -> None:
        self._closed = closed
        self._is_in_use = is_in_use
        self._log = log
        self._per_host: Counter[str] = Counter()
        self._newcomers: OrderedDict[Connection, None] = OrderedDict()
        """Connections that had sent no complete frame at the last check, oldest first."""
        self._idle: list[Connection] = []
        """Connections that were idle at the last check, the longest silent last."""
        self._look_again_s = 0.0
        self._turned_away: Counter[str] = Counter()
        """Connections closed or refused for lack of room since the last sweep, by reason."""
        limits = limits or Limits()
        self.unfinished = MemoryBudget(limits.max_unfinished_bytes, "an unfinished frame", log)
        self.unread = MemoryBudget(
            limits.max_unread_bytes,
            "replies that it does not read",
            log,
            measure=lambda connection: connection.unsent_bytes,
        )
        self._listeners: list[asyncio.AbstractServer] = []
        self._sweeper: asyncio.Handle | None = None
        self._all_closed = asyncio.Event()
        self.endpoint: Endpoint[C] = Endpoint(
            context,
            routes,
            tasks,
            limits=limits,
            log=log,
            opened=self._opened,
            closed=self._forget,
            unfinished=self.unfinished.note,
            unread=self.unread.note,
        )

    @property
    def connections(self) -> Collection[Connection]:
        """All connections, in the order of arrival."""
        return self.endpoint.connections

    async def listen(self, host: str, port: int) -> int:
        """Start to listen; returns the port (port 0 takes a free one). Raises OSError."""
        bound = await self.bind(host, port)
        await self.accept()
        return bound

    async def bind(self, host: str, port: int) -> int:
        """Bind a port; `accept` starts accepting connections. Raises OSError."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: Connection(self.endpoint), host, port, start_serving=False
        )
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def accept(self) -> None:
        """Accept connections on every port that was bound."""
        for listener in self._listeners:
            if not listener.is_serving():
                await listener.start_serving()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def serve(
        self,
        context: C,
        *,
        closed: Callable[[Connection], None],
        is_in_use: Callable[[Connection], bool],
    ) -> None:
        """Set parts that were created after `bind`; call before `accept`."""
        self.endpoint.context = context
        self._closed = closed
        self._is_in_use = is_in_use

    async def close(self, *, grace_s: float = _GRACE_S) -> None:
        """Stop listening, then close every connection after sending what is already written.

        Connections whose peers do not read it in time are aborted.
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
                async with asyncio.timeout(grace_s):
                    await self._all_closed.wait()
        for connection in tuple(self.connections):
            connection.abort()
        # The transports call connection_lost in their next callbacks: give them one turn.
        await asyncio.sleep(0)
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    def _opened(self, connection: Connection) -> None:
        self._all_closed.clear()
        limits = self.endpoint.limits
        host = connection.peer_host
        self._per_host[host] += 1
        from_one = self._per_host[host] > limits.max_connections_per_address
        if from_one and not _is_loopback(host):
            most = limits.max_connections_per_address
            self._turned_away[f"refused from {host}, which has {most}"] += 1
            connection.abort()
        elif len(self.connections) > limits.max_connections and not self._make_room():
            self._turned_away["refused, because none is idle"] += 1
            connection.abort()
        else:
            self._newcomers[connection] = None

    def _make_room(self) -> bool:
        """Close the least useful connection; False if none may be closed."""
        while self._newcomers:
            oldest, _ = self._newcomers.popitem(last=False)
            if oldest.is_open and not oldest.frames_read:
                self._turned_away["closed that had sent no request"] += 1
                oldest.abort()
                return True
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + _LOOK_S
            idle = (each for each in self.connections if self._is_idle(each, now_s))
            self._idle = sorted(idle, key=lambda each: each.last_read_s, reverse=True)
        while self._idle:
            if self._is_idle(longest := self._idle.pop(), now_s):
                self._turned_away["closed that were silent"] += 1
                longest.abort()
                return True
        return False

    def _is_idle(self, connection: Connection, now_s: float) -> bool:
        if now_s - connection.last_read_s <= self.endpoint.limits.idle_s / 2:
            return False
        if not connection.is_open or connection.is_at_work:
            return False
        return self._is_in_use is None or not self._is_in_use(connection)

    def _forget(self, connection: Connection) -> None:
        host = connection.peer_host
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]
        self._newcomers.pop(connection, None)
        self.unfinished.forget(connection)
        self.unread.forget(connection)
        if not self.connections:
            self._all_closed.set()
        if self._closed is not None:
            self._closed(connection)

    def _sweep(self) -> None:
        self._sweep_some(iter(tuple(self.connections)))

    def _sweep_some(self, connections: Iterator[Connection]) -> None:
        loop = asyncio.get_running_loop()
        now, limits = loop.time(), self.endpoint.limits
        some = tuple(islice(connections, _SWEPT_PER_TURN))
        for connection in some:
            allowed_s = limits.idle_s if connection.frames_read else limits.first_frame_s
            if connection not in self.connections:
                continue  # it has ended since the sweep began
            if now - connection.last_read_s > allowed_s:
                self._log.info("closing %s: silent for %g s", connection.peer, allowed_s)
                # Not `close`: data that a peer does not read would stay in memory.
                connection.abort()
            else:
                self.unread.note(connection, connection.unsent_bytes)
        if some or self.unfinished.close_older_than(limits.whole_frame_s, most=_SWEPT_PER_TURN):
            self._sweeper = loop.call_soon(self._sweep_some, connections)
            return
        self._report_turned_away()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    def _report_turned_away(self) -> None:
        """One line for all: a flood of connections must not become a flood of log lines."""
        if self._turned_away:
            counts = ", ".join(f"{count} {what}" for what, count in self._turned_away.items())
            most = self.endpoint.limits.max_connections
            self._log.warning("connections beyond the limit of %d: %s", most, counts)
            self._turned_away.clear()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
