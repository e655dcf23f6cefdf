"""Serving a console: its socket, uvicorn, and an orderly shutdown."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.console.app import Application
from sparrowmq.console.clusters import Clusters
from sparrowmq.console.config import ConsoleConfig
from sparrowmq.console.console import Console
from sparrowmq.console.sockets import url_of

_GRACE_S = 2
_CONNECTIONS = 512
HEAD_S = 10.0
"""How long the head of a request may take to arrive."""

log = logging.getLogger("sparrowmq.console")


class _Http(H11Protocol):
    """Closes a connection on which a request begins and does not get on. Each holds one of the
    few places, and without this a page of half requests would lock everybody out for good."""

    _arriving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A request is expected."""
        super().connection_made(transport)
        self._arriving = self.loop.call_later(HEAD_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """A part of a request. Once one is being answered, the guard limits its form, and uvicorn
        the pause after it."""
        super().data_received(data)
        # uvicorn declares the cycle without None, which it is before the first request.
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self._has_arrived()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(HEAD_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will arrive."""
        self._has_arrived()
        super().connection_lost(exc)

    def _has_arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None


class _Server(uvicorn.Server):
    """Leaves signals to the command, and ends live streams when it shuts down."""

    def __init__(self, config: uvicorn.Config, console: Console) -> None:
        super().__init__(config)
        self._console = console

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the command handles them."""
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Never called."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End live streams before the server closes its connections."""
        self._console.desk.live.close()
        await super().shutdown(sockets)


async def serve(
    config: ConsoleConfig,
    listener: socket.socket,
    stopping: asyncio.Event,
    ready: Callable[[str], None],
) -> None:
    """Serve on a listening socket until `stopping` is set, then close it; calls `ready` with the
    address. Raises ConsoleError."""
    # uvicorn closes the socket only if it is asked to stop after its start.
    with listener:
        await _serve(config, listener, stopping, ready)


async def _serve(
    config: ConsoleConfig,
    listener: socket.socket,
    stopping: asyncio.Event,
    ready: Callable[[str], None],
) -> None:
    known = ClientConfig(name_servers=config.name_servers).from_origin(config.origin)
    async with Client(known) as client:
        console = Console(config, client)
        clusters = Clusters(console)
        port = listener.getsockname()[1]
        settings = uvicorn.Config(
            Application(console, clusters).asgi(port=port),
            http=_Http,  # h11 refuses heads over 64 KiB
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_S,
            ssl_certfile=config.tls_cert,
            ssl_keyfile=config.tls_key,
        )
        server = _Server(settings, console)
        async with clusters.running(), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[listener]))
            ready(url_of(config.listen, port, scheme=config.scheme))
            ended = tasks.create_task(stopping.wait())
            await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            ended.cancel()
