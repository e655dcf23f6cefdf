"""A server of a few read-only pages: GET, HTTP/1.1, one request per connection.

It serves Prometheus and probes in a process whose main work is something else, so everything is
bounded: the header, the connections, and the time from the first byte to the last.

    accepted ─▶ header complete ─▶ its page ─▶ written ─▶ closed
        └────────── 10 s after it was accepted: aborted ──────┘
"""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, cast

from sparrowmq.config_fields import ConfigError

_MAX_HEADER_BYTES = 8 * 1024
_MAX_CONNECTIONS = 16
_WHOLE_S = 10.0
"""Prometheus gives up after 10 s as well, unless it is configured otherwise."""
_END = b"\r\n\r\n"
_PLAIN = "text/plain; charset=utf-8"


class HttpAnswer(NamedTuple):
    """The answer of a page. `body` may have several parts, which are written in turn."""

    body: str | Sequence[bytes]
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _PLAIN


Page = Callable[[], Awaitable[HttpAnswer]]


def page_address(host: str, port: int, path: str) -> str:
    """The URL of a page."""
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


class HttpServer:
    """Serves `pages` by path. `tasks` owns the tasks behind pages, and must outlive the server."""

    def __init__(
        self, pages: Mapping[str, Page], tasks: asyncio.TaskGroup, *, log: logging.Logger
    ) -> None:
        self.pages = dict(pages)
        self.log = log
        self.tasks = tasks
        self.open: dict[_Visit, None] = {}
        self._listener: asyncio.AbstractServer | None = None

    async def listen(self, host: str, port: int) -> int:
        """Accept connections; returns the port (0 takes a free one). Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Visit(self), host, port)
        return int(self._listener.sockets[0].getsockname()[1])

    async def listen_or_elsewhere(self, host: str, port: int) -> int:
        """`listen`, on a free port if this one is taken: pages must never keep the server they
        describe from starting. Raises ConfigError for an address that this machine lacks."""
        try:
            return await self.listen(host, port)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                allowed = f"must be an address of this machine: {error.strerror or error}"
                raise ConfigError("metrics_listen_host", host, allowed) from error
            free = await self.listen(host, 0)
            text = "port %d for metrics is not free (%s): they are at port %d of %s"
            self.log.warning(text, port, os.strerror(error.errno), free, host)
            return free

    async def close(self) -> None:
        """Stop listening and close every connection now."""
        if self._listener is not None:
            self._listener.close()
        for visit in tuple(self.open):
            visit.abort()
        # The transports call connection_lost in their next callbacks: give them one turn.
        await asyncio.sleep(0)
        if self._listener is not None:
            await self._listener.wait_closed()
            self._listener = None

    async def answer(self, head: bytes) -> HttpAnswer:
        """The answer to a request; only its first line matters."""
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            text = "this is not a request of HTTP/1.1, such as GET /healthz HTTP/1.1\n"
            return HttpAnswer(text, HTTPStatus.BAD_REQUEST)
        if method != b"GET":
            return HttpAnswer("only GET is allowed here\n", HTTPStatus.METHOD_NOT_ALLOWED)
        page = self.pages.get(target.partition(b"?")[0].decode("latin-1"))
        if page is None:
            text = f"there is no such page; there are {', '.join(self.pages)}\n"
            return HttpAnswer(text, HTTPStatus.NOT_FOUND)
        try:
            return await page()
        except Exception as error:
            self.log.error("page %s failed", target.decode("latin-1"), exc_info=error)
            text = "the page failed inside the server; its log says why\n"
            return HttpAnswer(text, HTTPStatus.INTERNAL_SERVER_ERROR)


class _Visit(asyncio.Protocol):
    """One connection, for one request."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._is_answered = False
        self._deadline: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is ready."""
        # uvloop's transports have its methods without inheriting from it
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(_WHOLE_S, self.abort)
        self._server.open[self] = None
        if len(self._server.open) > _MAX_CONNECTIONS:
            text = f"{_MAX_CONNECTIONS} connections are open, which is the limit; try again later\n"
            self._write(HttpAnswer(text, HTTPStatus.SERVICE_UNAVAILABLE))

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport has ended, closed by either side."""
        self._deadline.cancel()
        self._server.open.pop(self, None)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Collect the header; anything after it is ignored."""
        if self._task is not None or self._is_answered:
            return
        self._head += data
        if _END in self._head:
            self._task = self._server.tasks.create_task(self._serve(bytes(self._head)))
        elif len(self._head) > _MAX_HEADER_BYTES:
            text = f"the header has more than {_MAX_HEADER_BYTES} bytes\n"
            self._write(HttpAnswer(text, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    async def _serve(self, head: bytes) -> None:
        self._write(await self._server.answer(head))

    def _write(self, answer: HttpAnswer) -> None:
        self._is_answered = True
        body = [answer.body.encode()] if isinstance(answer.body, str) else answer.body
        lines = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {sum(map(len, body))}",
            *(["Allow: GET"] if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        if not self._transport.is_closing():
            self._transport.writelines([("\r\n".join(lines) + "\r\n\r\n").encode(), *body])
            self._transport.close()  # after everything is written

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()
