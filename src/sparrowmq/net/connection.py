"""One connection, the same on both sides: serves requests and makes calls.

bytes ─ feed ─ frames ─ request ── handler ── Reply now      ┬ one write per read callback
                      │                    ├─ Reply later    ┘ (awaitable: a task; None: kept)
                      └ response ── the call that waits for it

After a failed write, a transport is already closing one turn of the loop before `connection_lost`.
Nothing is written to it in between: asyncio would drop it, and warn from the fifth time on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any, cast

import msgspec

from sparrowmq.net.calls import Calls, Response
from sparrowmq.net.endpoint import Endpoint
from sparrowmq.net.errors import (
    CLOSED_BY_PEER,
    CLOSED_BY_US,
    ConnectionLost,
    RequestRefused,
    in_words,
)
from sparrowmq.net.routes import Answered, Reply, Request
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.frame import Frame, FrameDecoder
from sparrowmq.protocol.header import ONEWAY_FLAG, RESPONSE_FLAG, RequestHeader, decode_plain
from sparrowmq.protocol.header_encoding import encode_request, encode_response, encode_success
from sparrowmq.protocol.hosts import encode_host

_MOST_REMARK = 2_000


class Connection(asyncio.Protocol):
    """A connection to a peer. When it ends, waiting calls fail and handlers are cancelled."""

    def __init__(self, endpoint: Endpoint[Any]) -> None:
        self.endpoint = endpoint
        self.peer = ""
        self.peer_host = ""
        self.peer_port = 0
        self.peer_bytes = b""
        """Address and port as a message record carries them."""
        self.last_read_s = 0.0
        self.frames_read = 0
        self.is_open = False
        self._end = ""
        """Why this side closed the connection."""
        limits = endpoint.limits
        watch = None if endpoint.unfinished is None else partial(endpoint.unfinished, self)
        self._decoder = FrameDecoder(limits.max_frame_bytes, limits.max_header_bytes, watch)
        self._frame_budget = limits.frames_per_callback
        self._byte_budget = limits.reply_bytes_per_callback
        self._backlog: list[Frame] = []
        self._is_writable = True
        self._calls = Calls()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop

    @property
    def is_at_work(self) -> bool:
        """Whether a handler is working for this peer, or a call to it is unanswered."""
        return bool(self._tasks or self._calls.waiting)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the peer has not read yet."""
        return self._transport.get_write_buffer_size()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is ready."""
        # uvloop's transports have its methods without inheriting from it
        self._transport = transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        transport.set_write_buffer_limits(high=self.endpoint.limits.write_buffer_bytes)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer_host, self.peer_port = address[0], address[1]
        self.peer_bytes = _host_bytes(self.peer_host, self.peer_port)
        self.peer = f"{self.peer_host}:{self.peer_port}"
        self.last_read_s = self._loop.time()
        self.is_open = True
        self.endpoint.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport has ended, closed by either side."""
        self.is_open = False
        self._backlog.clear()
        self._decoder.abandon()
        for task in tuple(self._tasks):
            task.cancel()
        words = in_words(exc) if exc is not None else ""
        self._calls.fail_all(ConnectionLost(self.peer, self._end or words or CLOSED_BY_PEER))
        self.endpoint.connection_closed(self)

    def data_received(self, data: bytes) -> None:
        """Serve every complete frame and answer them with one write."""
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as error:
            self._drop(error)
            return
        self.last_read_s = self._loop.time()
        count = len(frames)
        self.frames_read += count
        if self._backlog:
            self._backlog.extend(frames)
        elif count == 1:
            self._serve_one(frames[0])
        elif count:
            self._serve(frames)

    def pause_writing(self) -> None:
        """The peer is not reading its answers: stop reading its requests."""
        self._is_writable = False
        self._transport.pause_reading()
        self._note_unread()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._is_writable = True
        if self.endpoint.unread is not None:
            self.endpoint.unread(self, 0)
        if self.is_open:
            self._loop.call_soon(self._go_on)

    # ---- serving

    def _serve_one(self, frame: Frame) -> None:
        """`_serve` for the usual read: a single request whose sender waits for the answer.

        The loop over frames, the joining of replies and the budgets would cost more than the rest.
        """
        try:
            reply = self._answer(*frame)
        except ProtocolError as error:
            self._drop(error)
            return
        if reply is not None and not self._transport.is_closing():
            self._transport.write(reply)

    def _serve(self, frames: list[Frame]) -> None:
        replies: list[bytes] = []
        reply_bytes = 0
        broken: ProtocolError | None = None
        for served, (binary, header, body) in enumerate(frames, 1):
            try:
                reply = self._answer(binary, header, body)
            except ProtocolError as error:
                broken = error
                break
            if reply is not None:
                replies.append(reply)
                reply_bytes += len(reply)
            if served >= self._frame_budget or reply_bytes >= self._byte_budget:
                self._postpone(frames[served:])
                break
        if replies and not self._transport.is_closing():
            self._transport.write(b"".join(replies) if len(replies) > 1 else replies[0])
        if broken is not None:
            self._drop(broken)

    def _postpone(self, frames: list[Frame]) -> None:
        """Postpone the frames that exceed this turn's budget; other connections go first."""
        if frames and self.is_open:
            self._backlog = frames
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self.is_open or not self._is_writable:
            return
        frames, self._backlog = self._backlog, []
        self._serve(frames)
        if self._may_read():
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        return self.is_open and self._is_writable and not self._backlog

    def _answer(self, binary: bool, header: bytes, body: bytes) -> bytes | None:
        """The frame to send back now, if any. Raises ProtocolError for an invalid header."""
        if self._calls.waiting and self._took_response(binary, header, body):
            return None
        endpoint = self.endpoint
        try:
            envelope = endpoint.decode(True, header) if binary else endpoint.decode_json(header)
        except (msgspec.MsgspecError, ProtocolError, UnicodeDecodeError, TypeError) as error:
            return self._answer_unusual(binary, header, body, error)
        flag = envelope.flag
        if flag & RESPONSE_FLAG:
            return self._answer_unusual(binary, header, body, None)
        typed = envelope.header
        request: Request[Any] = Request(
            typed, body, envelope.opaque, flag, envelope.language, envelope.version, binary, self
        )
        try:
            handled = endpoint.handlers[type(typed)](endpoint.context, request)
            if type(handled) is Reply:
                return None if flag & ONEWAY_FLAG else encode_reply(request, handled)
        except Exception as error:
            reply = self._reply_to_error(error, request)
            return None if flag & ONEWAY_FLAG else encode_reply(request, reply)
        if handled is not None:
            self.answer_later(request, handled)
        return None

    def _took_response(self, binary: bool, header: bytes, body: bytes) -> bool:
        """Whether the frame was a response. While calls wait, it nearly always is."""
        plain = decode_plain(binary, header)
        if not plain.is_response:
            return False
        response = Response(plain.code, plain.remark or "", plain.ext_fields, body)
        self._calls.resolve(plain.opaque, response)
        return True

    def _answer_unusual(
        self, binary: bool, header: bytes, body: bytes, error: Exception | None
    ) -> bytes | None:
        """A response to one of our calls, an undeclared request code, or a malformed request."""
        if self._took_response(binary, header, body):
            return None
        plain = decode_plain(binary, header)
        if plain.flag & ONEWAY_FLAG:
            self.endpoint.log.warning("%s sent a bad one-way request: %s", self.peer, error)
            return None
        code, text = _explain(plain.code, error, self.endpoint)
        return encode_response(plain.opaque, code=code, remark=text, binary=binary)

    def _reply_to_error(self, error: Exception, request: Request[Any]) -> Reply:
        """The one place where an exception becomes an answer."""
        if isinstance(error, RequestRefused):
            return Reply(code=error.code, remark=_shortened(error.text))
        name = type(request.header).__name__
        self.endpoint.log.error("%s failed for %s", name, self.peer, exc_info=error)
        text = f"{name} failed inside the server; its log says why"
        return Reply(code=ResponseCode.SYSTEM_ERROR, remark=text)

    def answer_later(self, request: Request[Any], waiting: Awaitable[Reply | None]) -> None:
        """Answer when `waiting` has a reply, unless it kept the request; cancelled when the peer
        disconnects."""
        task = self.endpoint.spawn(self._finish(request, waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, request: Request[Any], waiting: Awaitable[Reply | None]) -> None:
        try:
            reply = await waiting
            if reply is not None:
                self.write_reply(request, reply)
        except Exception as error:
            self.write_reply(request, self._reply_to_error(error, request))

    def write_reply(self, request: Request[Any], reply: Reply) -> None:
        """Answer a request that was kept; does nothing if the peer has disconnected."""
        is_lost = not self.is_open or self._transport.is_closing()
        if not is_lost and not request.flag & ONEWAY_FLAG:
            self._transport.write(encode_reply(request, reply))
            if not self._is_writable:
                self._note_unread()

    def write_replies(self, answers: Iterable[Answered]) -> None:
        """`write_reply` for all of them, with one write."""
        frames = [encode_reply(*answer) for answer in answers if not answer[0].flag & ONEWAY_FLAG]
        if frames and self.is_open:
            self._transport.write(b"".join(frames))
            if not self._is_writable:
                self._note_unread()

    def _note_unread(self) -> None:
        if self.endpoint.unread is not None:
            self.endpoint.unread(self, self.unsent_bytes)

    def _drop(self, error: Exception) -> None:
        """Bytes after a broken frame mean nothing: close this connection, and only this one."""
        # The callers that wait for this peer are given the reason, and log it as they see fit.
        level = logging.DEBUG if self._calls.waiting else logging.WARNING
        self.endpoint.log.log(level, "closing %s: %s", self.peer, error)
        self._end = f"it does not speak RocketMQ's protocol ({error})"
        self._backlog.clear()
        self.close()

    # ---- calling

    def call(
        self, header: RequestHeader, body: bytes = b"", *, timeout_s: float
    ) -> asyncio.Future[Response]:
        """Send a request; the future gives the response.

        It raises ConnectionLost when the connection ends, CallTimedOut when the time is up.
        """
        if not self.is_open:
            raise ConnectionLost(self.peer, self._end or CLOSED_BY_PEER)
        opaque, future = self._calls.open(self._loop, self.peer, type(header).__name__, timeout_s)
        if not self._transport.is_closing():  # else `connection_lost` follows and fails the call
            self._transport.write(encode_request(header, opaque, body))
        return future

    def send_oneway(self, header: RequestHeader, body: bytes = b"") -> None:
        """Send a request without an answer. Raises ConnectionLost when there is no connection."""
        if not self.is_open or self._transport.is_closing():
            raise ConnectionLost(self.peer, self._end or CLOSED_BY_PEER)
        opaque = self._calls.next_opaque()
        self._transport.write(encode_request(header, opaque, body, oneway=True))

    def close(self) -> None:
        """Close the connection after sending everything already written."""
        self.is_open = False
        self._end = self._end or CLOSED_BY_US
        self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        self.is_open = False
        self._end = self._end or CLOSED_BY_US
        self._transport.abort()


def _host_bytes(host: str, port: int) -> bytes:
    try:
        return encode_host(host, port)
    except ValueError:  # a named host of a simulated network: records have room for addresses only
        return encode_host("127.0.0.1", port)


def encode_reply(request: Request[Any], reply: Reply) -> bytes:
    """The frame that answers `request`, in the request's serialisation."""
    if not (reply.code or reply.remark or request.binary):
        return encode_success(
            request.opaque, reply.header, reply.body, reply.chunks, reply.body_bytes
        )
    return encode_response(
        request.opaque,
        code=reply.code,
        header=reply.header,
        remark=reply.remark,
        body=reply.body,
        chunks=reply.chunks,
        body_bytes=reply.body_bytes,
        binary=request.binary,
    )


def _shortened(text: str) -> str:
    """Refusals quote what was asked for, and a name may fill a whole header."""
    return text if len(text) <= _MOST_REMARK else f"{text[:_MOST_REMARK]}…"


def _explain(code: int, error: Exception | None, endpoint: Endpoint[Any]) -> tuple[int, str]:
    if any(code == header.CODE for header in endpoint.handlers):
        name = RequestCode(code).name
        return ResponseCode.SYSTEM_ERROR, f"request {code} ({name}) is malformed: {error}"
    known = code in RequestCode.__members__.values()
    name = f" ({RequestCode(code).name})" if known else ""
    text = f"request code {code}{name} is not supported here"
    return ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text
