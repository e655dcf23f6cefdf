"""What a handler gets and what it gives back; sockets stay out of both."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import ONEWAY_FLAG, RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from sparrowmq.net.connection import Connection

H = TypeVar("H", bound=RequestHeader, covariant=True)


class Reply:
    """An answer: code, remark, header, and a body in one piece or in slices."""

    __slots__ = ("body", "body_bytes", "chunks", "code", "header", "remark")

    def __init__(
        self,
        header: ResponseHeader | None = None,
        body: bytes = b"",
        *,
        code: int = ResponseCode.SUCCESS,
        remark: str = "",
        chunks: Sequence[bytes | memoryview] = (),
        body_bytes: int = 0,
    ) -> None:
        self.header = header
        self.body = body
        self.code = code
        self.remark = remark
        self.chunks = chunks
        self.body_bytes = body_bytes


class Request(Generic[H]):
    """A typed request and the connection it came from.

    A handler that returns None keeps the request and answers later with `answer`.
    """

    __slots__ = ("binary", "body", "connection", "flag", "header", "language", "opaque", "version")

    def __init__(
        self,
        header: H,
        body: bytes,
        opaque: int,
        flag: int,
        language: str,
        version: int,
        binary: bool,
        connection: Connection,
    ) -> None:
        self.header = header
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.binary = binary
        self.connection = connection

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONEWAY_FLAG)

    def answer(self, reply: Reply) -> None:
        """Answer now a request that was kept; nothing happens when the peer has gone."""
        self.connection.write_reply(self, reply)


Handled = Reply | Awaitable[Reply] | None
