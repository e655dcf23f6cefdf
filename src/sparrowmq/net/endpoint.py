"""What all connections of one side share: handlers, limits, callbacks, and the owner of tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sparrowmq.net.routes import Routes
from sparrowmq.protocol.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from sparrowmq.protocol.header import RequestHeader

if TYPE_CHECKING:
    from sparrowmq.net.connection import Connection

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what one connection may cost."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """A peer that sends a larger request is disconnected."""
    max_header_bytes: int = MAX_HEADER_BYTES
    """The same for the header alone."""
    frames_per_callback: int = 64
    """Frames served before other connections get their turn."""
    reply_bytes_per_callback: int = 1024 * 1024
    """Reply bytes written before other connections get their turn."""
    write_buffer_bytes: int = 4 * 1024 * 1024
    """A peer that leaves more than this unread is not read from either."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """What replies that peers leave unread may hold together: beyond it, the connections that have
    held the most for the longest are closed."""
    first_frame_s: float = 10.0
    """A peer that has sent no request after this long is disconnected."""
    idle_s: float = 120.0
    """… and one that was silent for this long since its last."""
    whole_frame_s: float = 120.0
    """A frame that is not whole this long after its first byte ends its connection: bytes that
    trickle in do not keep it open. Leaves 4 MiB enough time at 0.3 Mbit/s."""
    max_unfinished_bytes: int = 256 * 1024 * 1024
    """What the unfinished frames of all connections may hold together: 64 messages of 4 MiB at
    once. Beyond it, the connections that have held the most for the longest are closed."""
    max_connections: int = 10_000
    """A further one takes the place of an idle one, or is closed at once where there is none. Less
    where the limit of open files leaves room for fewer."""
    max_connections_per_address: int = 500
    """Loopback addresses are exempt."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise ValueError(f"{each.name} is {getattr(self, each.name)}, must be more than 0")


class Endpoint(Generic[C]):
    """One side of many connections: a server, or a client that brokers call back.

    `tasks` owns every handler that waits. It must be running while connections exist.
    """

    def __init__(
        self,
        context: C | None,
        routes: Routes[C],
        tasks: asyncio.TaskGroup,
        *,
        limits: Limits | None = None,
        log: logging.Logger,
        opened: Callable[[Connection], None] | None = None,
        closed: Callable[[Connection], None] | None = None,
        unfinished: Callable[[Connection, int], None] | None = None,
        unread: Callable[[Connection, int], None] | None = None,
    ) -> None:
        self.context = cast("C", context)
        """Handed to every handler. None only until a server that listened first is served."""
        self.handlers: dict[type[RequestHeader], Any] = dict(routes.handlers)
        self.decode: Any = routes.decoder.decode
        self.decode_json: Any = routes.decoder.decode_json
        self.limits = limits or Limits()
        self.log = log
        self.opened = opened
        self.closed = closed
        self.unfinished = unfinished
        """Called with the bytes of an unfinished frame that a connection holds, 0 for none."""
        self.unread = unread
        """Called with the bytes of replies that its peer has not read, 0 for none."""
        # In the order they came: a set would end them in another order in every run.
        self.connections: dict[Connection, None] = {}
        self._tasks = tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a handler that waits; it ends with the process at the latest."""
        return self._tasks.create_task(work)

    def connection_opened(self, connection: Connection) -> None:
        """Called by a connection when its transport is ready."""
        self.connections[connection] = None
        if self.opened is not None:
            self.opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Called by a connection, once, when it has ended."""
        self.connections.pop(connection, None)
        if self.closed is not None:
            self.closed(connection)
