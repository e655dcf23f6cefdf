"""Slow producers down: messages are stored at once, and their answers are delayed.

Messages stay in order, and only answers wait in memory, up to a limit. Refusals are not delayed,
and a broker that stops holds nothing back: a send that is not answered is sent again.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sparrowmq.broker.traffic.backlog import BacklogState
from sparrowmq.net.connection import Connection
from sparrowmq.net.routes import Answered, Handled, Reply, Request, answer_all
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import AnySend

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.traffic.limited_sends import Admitted
    from sparrowmq.protocol.topic_config import TopicConfig

MOST_HELD = 1000
"""Answers. What is answered while this many are held is answered at once."""
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""Answers that say that the message is stored. All others are refusals."""


class Slowing:
    """The answers that are held."""

    def __init__(self) -> None:
        self._held: dict[Request[Any], tuple[Reply, asyncio.TimerHandle]] = {}
        self._is_over = False

    @property
    def held(self) -> int:
        """How many answers are held."""
        return len(self._held)

    @property
    def _has_room(self) -> bool:
        return len(self._held) < MOST_HELD and not self._is_over

    def send_slowly(
        self,
        backlog: BacklogState,
        send: "Admitted",
        broker: "Broker",
        request: Request[AnySend],
        topic: "TopicConfig",
    ) -> Handled:
        """Handle a send and delay its answer. Raises RequestRefused without delay."""
        if request.is_oneway or not self._has_room:
            return send(broker, request, topic)
        late = _LateConnection(request.connection, backlog, broker)
        # If the send waits for the disk or for slaves, those write its answer.
        own = msgspec.structs.replace(request, connection=cast(Connection, late))
        handled = send(broker, own, topic)
        if isinstance(handled, Reply):
            return late.held_or_now(own, handled)
        return None if handled is None else _answer_late(late, own, handled)

    def hold(self, request: Request[Any], reply: Reply, hold_s: float) -> bool:
        """Whether there was room for the answer, which is then written after that time."""
        # Asked again: sends that waited for one sync or one slave are answered together.
        if not self._has_room:
            return False
        timer = asyncio.get_running_loop().call_later(hold_s, self._write, request)
        self._held[request] = reply, timer
        return True

    def _write(self, request: Request[Any]) -> None:
        reply, _ = self._held.pop(request)
        request.answer(reply)

    def release(self) -> None:
        """Write all answers that are held, and hold none from now on: connections are about to be
        closed."""
        self._is_over = True
        held, self._held = self._held, {}
        for _, timer in held.values():
            timer.cancel()
        answer_all((request, reply) for request, (reply, _) in held.items())


async def _answer_late(
    late: "_LateConnection", request: Request[AnySend], waiting: Awaitable[Reply | None]
) -> Reply | None:
    reply = await waiting
    return None if reply is None else late.held_or_now(request, reply)


class _LateConnection:
    """A connection, as sends see it, that writes later."""

    def __init__(self, connection: Connection, backlog: BacklogState, broker: "Broker") -> None:
        self.peer_bytes = connection.peer_bytes
        self.peer = broker.producers.client_id(connection)
        """What quotas know the client by: they cannot look this connection up."""
        self._connection = connection
        self._backlog = backlog
        self._hold_s = backlog.hold_s
        self._broker = broker

    def held_or_now(self, request: Request[Any], reply: Reply) -> Reply | None:
        """The answer itself if it goes out at once; None if it is held."""
        if reply.code not in _STORED:
            return reply
        # Without its body: that is stored, and may be as large as a message can be.
        kept = msgspec.structs.replace(request, connection=self._connection, body=b"")
        if not self._broker.traffic.slowing.hold(kept, reply, self._hold_s):
            return reply
        self._backlog.refusals.add(1, self._broker.monotonic())
        return None

    def write_reply(self, request: Request[Any], reply: Reply) -> None:
        if self.held_or_now(request, reply) is not None:
            self._connection.write_reply(request, reply)

    def write_replies(self, answers: Iterable[Answered]) -> None:
        for request, reply in answers:
            self.write_reply(request, reply)
