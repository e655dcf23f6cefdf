"""What a handler gets and what it gives back; sockets stay out of both."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import ONEWAY_FLAG, RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from sparrowmq.net.connection import Connection

H = TypeVar("H", bound=RequestHeader, covariant=True)


class Reply(msgspec.Struct, eq=False):
    """An answer: code, remark, header, and a body in one piece or in slices.

    A struct, as is Request: one of each is made for every frame, and an `__init__` written in
    Python takes three times as long.
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
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONEWAY_FLAG)

    def answer(self, reply: Reply) -> None:
        """Answer now a request that was kept; nothing happens when the peer has gone."""
        self.connection.write_reply(self, reply)


Handled = Reply | Awaitable[Reply | None] | None
