"""Slow producers down: messages are stored at once, and their answers are delayed.

Messages stay in order, and only answers wait in memory, up to a limit.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sparrowmq.broker.traffic.backlog import BacklogState
from sparrowmq.net.connection import Connection
from sparrowmq.net.routes import Answered, Handled, Reply, Request
from sparrowmq.protocol.headers.send import AnySend

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.traffic.limited_sends import Admitted
    from sparrowmq.protocol.topic_config import TopicConfig

MOST_HELD = 1000
"""Answers. Sends that come while this many are held are answered at once."""


class Slowing:
    """The answers that are held."""

    def __init__(self) -> None:
        self.held = 0

    def send_slowly(
        self,
        backlog: BacklogState,
        send: "Admitted",
        broker: "Broker",
        request: Request[AnySend],
        topic: "TopicConfig",
    ) -> Handled:
        """Handle a send and delay its answer. Raises RequestRefused without delay."""
        backlog.refusals.add(1, broker.monotonic())
        if request.is_oneway or self.held >= MOST_HELD:
            return send(broker, request, topic)
        late = _LateConnection(request.connection, backlog.hold_s, self)
        # If the send waits for the disk or for slaves, those write its answer.
        own = msgspec.structs.replace(request, connection=cast(Connection, late))
        handled = send(broker, own, topic)
        if isinstance(handled, Reply):
            late.write_reply(request, handled)
            return None
        return None if handled is None else _answer_late(late, request, handled)


async def _answer_late(
    late: "_LateConnection", request: Request[AnySend], waiting: Awaitable[Reply | None]
) -> None:
    reply = await waiting
    if reply is not None:
        late.write_reply(request, reply)


class _LateConnection:
    """A connection, as sends see it, that writes later."""

    def __init__(self, connection: Connection, hold_s: float, slowing: Slowing) -> None:
        self.peer_bytes = connection.peer_bytes
        self.peer = connection.peer
        self._connection = connection
        self._hold_s = hold_s
        self._slowing = slowing

    def write_reply(self, request: Request[Any], reply: Reply) -> None:
        self._slowing.held += 1
        asyncio.get_running_loop().call_later(self._hold_s, self._write, request, reply)

    def write_replies(self, answers: Iterable[Answered]) -> None:
        for request, reply in answers:
            self.write_reply(request, reply)

    def _write(self, request: Request[Any], reply: Reply) -> None:
        self._slowing.held -= 1
        self._connection.write_reply(request, reply)
