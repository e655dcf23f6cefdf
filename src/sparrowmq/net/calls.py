"""Our requests that wait for answers, matched by opaque number."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from sparrowmq.net.errors import CallTimedOut, NetError
from sparrowmq.protocol.header import ResponseHeader, decode_ext_fields

R = TypeVar("R", bound=ResponseHeader)


class Response:
    """A peer's answer."""

    __slots__ = ("body", "code", "ext_fields", "remark")

    def __init__(
        self, code: int, remark: str, ext_fields: Mapping[str, str] | None, body: bytes
    ) -> None:
        self.code = code
        self.remark = remark
        self.ext_fields = ext_fields
        self.body = body

    def header(self, kind: type[R]) -> R:
        """Its typed header. Raises HeaderError."""
        return decode_ext_fields(self.ext_fields, kind)


class Calls:
    """The calls of one connection. Each has a timer; an answer that comes too late is dropped."""

    __slots__ = ("_opaque", "waiting")

    def __init__(self) -> None:
        self._opaque = 0
        self.waiting: dict[int, tuple[asyncio.Future[Response], asyncio.TimerHandle]] = {}
        """By opaque number: the future of the answer and its timer."""

    def next_opaque(self) -> int:
        """A number that no waiting call uses."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def open(
        self, loop: asyncio.AbstractEventLoop, peer: str, request: str, timeout_s: float
    ) -> tuple[int, asyncio.Future[Response]]:
        """Register a call; returns its number and the future of its answer."""
        opaque = self.next_opaque()
        future: asyncio.Future[Response] = loop.create_future()
        timer = loop.call_later(timeout_s, self._expire, opaque, peer, request, timeout_s)
        self.waiting[opaque] = (future, timer)
        return opaque, future

    def resolve(self, opaque: int, response: Response) -> None:
        """Complete a call with its answer."""
        waiting = self.waiting.pop(opaque, None)
        if waiting is None:
            return
        future, timer = waiting
        timer.cancel()
        if not future.done():
            future.set_result(response)

    def fail_all(self, error: NetError) -> None:
        """The connection ended: no call will be answered."""
        waiting, self.waiting = self.waiting, {}
        for future, timer in waiting.values():
            timer.cancel()
            if not future.done():
                future.set_exception(error)

    def _expire(self, opaque: int, peer: str, request: str, timeout_s: float) -> None:
        future, _ = self.waiting.pop(opaque)
        if not future.done():
            future.set_exception(CallTimedOut(peer, request, timeout_s))
