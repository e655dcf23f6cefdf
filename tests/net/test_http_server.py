"""The HTTP pages of a server: read with GET only, within limits of size, number and time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from sparrowmq.net.http_server import HttpAnswer, HttpServer
from sparrowmq.testing.simulation import Simulation

HOST = "127.0.0.1"
_LOG = logging.getLogger("tests.http")


async def _hello() -> HttpAnswer:
    return HttpAnswer("hello\n")


async def _parts() -> HttpAnswer:
    return HttpAnswer([b"one\n", b"two\n"], content_type="text/x-parts")


async def _broken() -> HttpAnswer:
    raise RuntimeError("a page with a fault")


PAGES = {"/hello": _hello, "/parts": _parts, "/broken": _broken}


def _served(work: Callable[[int, HttpServer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            server = HttpServer(PAGES, tasks, log=_LOG)
            port = await server.listen(HOST, 0)
            try:
                await work(port, server)
            finally:
                await server.close()

    asyncio.run(run())


async def _ask(port: int, request: bytes) -> tuple[str, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    whole = await reader.read()
    writer.close()
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        (_get("/hello"), "200 OK", b"hello\n"),
        (_get("/hello?x=1"), "200 OK", b"hello\n"),
        (_get("/parts"), "200 OK", b"one\ntwo\n"),
        (_get("/nothing"), "404 Not Found", b"/hello, /parts, /broken"),
        (_get("/broken"), "500 Internal Server Error", b"its log says why"),
        (b"POST /hello HTTP/1.1\r\n\r\n", "405 Method Not Allowed", b"only GET"),
        (b"HEAD /hello HTTP/1.1\r\n\r\n", "405 Method Not Allowed", b"only GET"),
        (b"nonsense\r\n\r\n", "400 Bad Request", b"GET /healthz HTTP/1.1"),
        (b"GET /hello HTTP/2\r\n\r\n", "400 Bad Request", b"HTTP/1.1"),
        (b"GET /" + b"x" * 9000, "431 Request Header Fields Too Large", b"8192 bytes"),
    ],
)
def test_a_request_gets_its_page_or_the_reason_why_not(
    request_bytes: bytes, status: str, body: bytes
) -> None:
    async def work(port: int, server: HttpServer) -> None:
        first, headers, got = await _ask(port, request_bytes)
        assert first == f"HTTP/1.1 {status}"
        assert body in got
        assert int(headers["Content-Length"]) == len(got)
        assert headers["Connection"] == "close"

    _served(work)


def test_a_request_may_come_byte_by_byte() -> None:
    async def work(port: int, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        for byte in _get("/hello"):
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).endswith(b"\r\n\r\nhello\n")
        writer.close()

    _served(work)


def test_connections_over_the_limit_are_answered_and_closed() -> None:
    async def work(port: int, server: HttpServer) -> None:
        held = [await asyncio.open_connection(HOST, port) for _ in range(16)]
        first, _, body = await _ask(port, b"")
        assert first == "HTTP/1.1 503 Service Unavailable"
        assert b"16 connections are open" in body
        for _, writer in held:
            writer.close()

    _served(work)


class _Silent(asyncio.Protocol):
    """Connects and never asks."""

    def __init__(self) -> None:
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False


def test_a_connection_without_a_request_is_closed_after_ten_seconds() -> None:
    with Simulation(1) as sim:

        async def serve() -> None:
            async with asyncio.TaskGroup() as tasks:
                await HttpServer(PAGES, tasks, log=_LOG).listen("0.0.0.0", 5557)
                await asyncio.Event().wait()

        sim.host("server").start(serve())
        sim.until_idle()

        async def connect() -> _Silent:
            loop = asyncio.get_running_loop()
            _, silent = await loop.create_connection(_Silent, "server", 5557)
            return silent

        silent = sim.run(connect())
        sim.advance(9)
        assert silent.is_open
        sim.advance(2)
        assert not silent.is_open


def test_closing_ends_connections_that_have_not_asked() -> None:
    async def work(port: int, server: HttpServer) -> None:
        _, writer = await asyncio.open_connection(HOST, port)
        await _ask(port, _get("/hello"))  # the first one has been accepted by then
        assert len(server.open) == 1
        await server.close()
        assert not server.open
        writer.close()

    _served(work)
