"""What all connections of one side share: handlers, limits, callbacks and the task owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sparrowmq.config_fields import check_fields, more_than, setting
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from sparrowmq.protocol.header import RequestHeader

if TYPE_CHECKING:
    from sparrowmq.net.connection import Connection

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the resources of one connection."""

    max_frame_bytes: int = setting(
        MAX_FRAME_BYTES, "A peer that sends a larger request is disconnected.", more_than(0)
    )
    max_header_bytes: int = setting(
        MAX_HEADER_BYTES, "A peer that sends a larger header is disconnected.", more_than(0)
    )
    frames_per_callback: int = setting(
        64, "Frames of one connection served before the others get their turn.", more_than(0)
    )
    reply_bytes_per_callback: int = setting(
        1024 * 1024,
        "Reply bytes of one connection written before the others get their turn.",
        more_than(0),
    )
    write_buffer_bytes: int = setting(
        4 * 1024 * 1024,
        "The server stops reading from a peer that leaves more reply bytes than this unread.",
        more_than(0),
    )
    max_unread_bytes: int = setting(
        256 * 1024 * 1024,
        "Memory for the replies that all peers together leave unread. Above it, the connections"
        " that have held the most for the longest are closed.",
        more_than(0),
    )
    first_frame_s: float = setting(
        10.0,
        "A peer that has sent no whole frame yet is disconnected after this much silence. A first"
        " frame that trickles in has `whole_frame_s`, as every frame.",
        more_than(0),
    )
    idle_s: float = setting(
        120.0,
        "A peer that has been silent for this long since its last request is disconnected.",
        more_than(0),
    )
    whole_frame_s: float = setting(
        120.0,
        "A frame still incomplete this long after its first byte ends its connection: bytes that"
        " trickle in do not keep it open. Leaves 4 MiB enough time at 0.3 Mbit/s.",
        more_than(0),
    )
    max_unfinished_bytes: int = setting(
        256 * 1024 * 1024,
        "Memory for the incomplete frames of all connections: 64 messages of 4 MiB at once. Above"
        " it, the connections that have held the most for the longest are closed.",
        more_than(0),
    )
    max_connections: int = setting(
        10_000,
        "One more replaces an idle connection, or is closed at once where none is idle. Lower"
        " where the limit of open files leaves room for fewer.",
        more_than(0),
    )
    max_connections_per_address: int = setting(
        500, "Connections from one address. Loopback addresses are exempt.", more_than(0)
    )

    def __post_init__(self) -> None:
        check_fields(self)


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
        """Passed to every handler. None only before `serve`, in a server that binds first."""
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
        """Called with the bytes of replies that a connection's peer has not read, 0 for none."""
        # In the order of arrival: a set would close them in a different order in every run.
        self.connections: dict[Connection, None] = {}
        self._tasks = tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a handler that waits; it ends no later than the process."""
        return self._tasks.create_task(work)

    def connection_opened(self, connection: Connection) -> None:
        """Called by a connection once its transport is ready."""
        self.connections[connection] = None
        if self.opened is not None:
            self.opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Called once by each connection when it has ended."""
        self.connections.pop(connection, None)
        if self.closed is not None:
            self.closed(connection)
