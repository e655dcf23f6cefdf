"""Calls to other servers: one shared connection per address, opened when first needed."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sparrowmq.net.calls import Response
from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Endpoint, Limits
from sparrowmq.net.errors import CallTimedOut, NotConnected, in_words
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.hosts import refuse_port, refuse_scheme


class Peers:
    """Connections to other servers. Requests that arrive on them go to `routes`."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        log: logging.Logger,
        context: Any = None,
        routes: Routes[Any] | None = None,
        connect_timeout_s: float = 3.0,
        limits: Limits | None = None,
        closed: Callable[[str], None] | None = None,
    ) -> None:
        self._endpoint: Endpoint[Any] = Endpoint(
            context,
            routes if routes is not None else Routes(),
            tasks,
            limits=limits,
            log=log,
            closed=self._forget,
        )
        self._connect_timeout_s = connect_timeout_s
        self._closed = closed
        self._ready: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection | str]] = {}
        self._tasks = tasks
        self._is_closed = False

    async def call(
        self,
        address: str,
        header: RequestHeader,
        body: bytes = b"",
        *,
        timeout_s: float = 3.0,
    ) -> Response:
        """The answer, whatever its code. Connecting counts towards the time.

        Raises ConnectionLost or CallTimedOut.
        """
        connection = self._ready.get(address)
        if connection is not None and connection.is_open:
            return await connection.call(header, body, timeout_s=timeout_s)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        connection = await self.connect(address, timeout_s=timeout_s)
        left_s = timeout_s - (loop.time() - started_s)
        try:
            return await connection.call(header, body, timeout_s=max(0.0, left_s))
        except CallTimedOut:
            # Name the time the caller gave, not what was left of it after connecting.
            raise CallTimedOut(address, type(header).__name__, timeout_s) from None

    async def send_oneway(self, address: str, header: RequestHeader, body: bytes = b"") -> None:
        """Send without an answer. Raises ConnectionLost when there is no connection."""
        connection = await self.connect(address)
        connection.send_oneway(header, body)

    async def connect(self, address: str, *, timeout_s: float | None = None) -> Connection:
        """The open connection to `address`. Simultaneous callers share one attempt."""
        connection = self._ready.get(address)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            opening = self._begin(address)
        limit_s = self._connect_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                # Shielded: others may wait for the same attempt.
                opened = await asyncio.shield(opening)
        except TimeoutError:
            raise NotConnected(address, f"not connected within {limit_s:g} s") from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            is_asked_to_end = caller is not None and caller.cancelling() > 0
            if opening.cancelled() and not is_asked_to_end:  # by `close` alone
                raise NotConnected(address, "this side is closing") from None
            raise
        if isinstance(opened, str):
            raise NotConnected(address, opened)
        return opened

    def _begin(self, address: str) -> asyncio.Task[Connection | str]:
        """Start an attempt for callers to share."""
        if self._is_closed:  # callers whose connection `close` ended try again at once
            raise NotConnected(address, "this side is closing")
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise NotConnected(address, str(error)) from error
        attempt = self._open(address, host, port)
        try:
            opening = self._tasks.create_task(attempt)
        except RuntimeError as error:  # the group that owns our tasks is shutting down
            attempt.close()
            raise NotConnected(address, "this side is closing") from error
        self._opening[address] = opening
        opening.add_done_callback(lambda _: self._opening.pop(address, None))
        return opening

    async def _open(self, address: str, host: str, port: int) -> Connection | str:
        """The connection, or why there is none.

        Not an exception: raised, it would end the task group that owns this attempt; returned and
        raised by the callers, it and their frames would reference each other, and their data, such
        as the body of a request, would stay until the garbage collector runs.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._endpoint), host, port
                )
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: an invalid host name
            return in_words(error) or f"not connected within {self._connect_timeout_s:g} s"
        connection.peer = address
        self._ready[address] = connection
        return connection

    def known(self) -> list[str]:
        """Addresses with an open connection."""
        return [address for address, connection in self._ready.items() if connection.is_open]

    def drop(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._ready.pop(address, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close all connections permanently."""
        self._is_closed = True
        for task in tuple(self._opening.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for address in tuple(self._ready):
            self.drop(address)
        await asyncio.sleep(0)

    def _forget(self, connection: Connection) -> None:
        if self._ready.get(connection.peer) is connection:
            del self._ready[connection.peer]
        if self._closed is not None:
            self._closed(connection.peer)


def split_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port"; IPv6 in brackets. Raises ValueError otherwise."""
    refuse_scheme(address)
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not host:
        raise ValueError(f"address {address!r} is not host:port")
    refuse_port(address, port)
    return host.strip("[]"), int(port)
