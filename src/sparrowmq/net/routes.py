"""Routes: which function answers which request, its argument and its result.

A handler takes a typed request and returns a reply, or an awaitable if it has to wait; it never
sees a socket. Importing a handler module has no effect by itself: a server includes the routes it
wants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import ONEWAY_FLAG, RequestDecoder, RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from sparrowmq.net.connection import Connection

H = TypeVar("H", bound=RequestHeader, covariant=True)
C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


class Reply(msgspec.Struct, eq=False):
    """An answer: code, remark, header, and a body in one piece or in slices.

    A struct, like Request: one of each is made for every frame, and an `__init__` written in Python
    takes three times as long.
    """

    header: ResponseHeader | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str = ""
    chunks: Sequence[bytes | memoryview] = ()
    body_bytes: int = 0


class Request(msgspec.Struct, Generic[H], eq=False):
    """A typed request and the connection it came from.

    A handler that returns None keeps the request and answers later with `answer`.
    """

    header: H
    body: bytes
    opaque: int
    flag: int
    language: str
    version: int
    binary: bool
    connection: Connection

    @property
    def is_oneway(self) -> bool:
        """Whether the peer expects no answer."""
        return bool(self.flag & ONEWAY_FLAG)

    def answer(self, reply: Reply) -> None:
        """Answer a request that was kept; does nothing if the peer has disconnected."""
        self.connection.write_reply(self, reply)


Answered = tuple[Request[Any], Reply]


def answer_all(answers: Iterable[Answered]) -> None:
    """`Request.answer` for each of them, with one write per connection.

    Every write is an immediate system call, even with uvloop: for 64 sends of one client they cost
    as much as storing the messages.
    """
    by_connection: dict[Connection, list[Answered]] = {}
    for answer in answers:
        by_connection.setdefault(answer[0].connection, []).append(answer)
    for connection, own in by_connection.items():
        connection.write_replies(own)


Handled = Reply | Awaitable[Reply | None] | None
Handler = Callable[[C, Request[Any]], Handled]


class Routes(Generic[C]):
    """A table from request header type to handler, for servers with a context of type `C`."""

    def __init__(self) -> None:
        self._handlers: dict[type[RequestHeader], Handler[C]] = {}
        self._decoder: RequestDecoder | None = None

    def on(self, *headers: type[RequestHeader]) -> Callable[[F], F]:
        """Register the decorated function for these requests.

        A function that never waits is a plain `def`; its reply is sent in the read callback.
        """

        def register(handler: F) -> F:
            for header in headers:
                self._add(header, handler)
            return handler

        return register

    def include(self, *others: Routes[C]) -> None:
        """Add the handlers of other tables. Two handlers for one code are a programming error."""
        for other in others:
            for header, handler in other._handlers.items():
                self._add(header, handler)

    def _add(self, header: type[RequestHeader], handler: Handler[C]) -> None:
        assert all(header.CODE != known.CODE for known in self._handlers), header.CODE
        self._handlers[header] = handler
        self._decoder = None

    @property
    def decoder(self) -> RequestDecoder:
        """Decodes exactly the requests that are routed."""
        if self._decoder is None:
            self._decoder = RequestDecoder(self._handlers)
        return self._decoder

    @property
    def handlers(self) -> dict[type[RequestHeader], Handler[C]]:
        """The table itself, for the connection's read callback."""
        return self._handlers

    @property
    def codes(self) -> set[int]:
        """Every request code that is served."""
        return {int(header.CODE) for header in self._handlers}
