"""Serving a console: its socket, uvicorn, and an orderly shutdown."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.console.app import Application
from sparrowmq.console.clusters import Clusters
from sparrowmq.console.config import ConsoleConfig
from sparrowmq.console.console import Console
from sparrowmq.console.sockets import url_of

_GRACE_S = 2
_CONNECTIONS = 512

log = logging.getLogger("sparrowmq.console")


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
    async with Client(ClientConfig(name_servers=config.name_servers)) as client:
        console = Console(config, client)
        clusters = Clusters(console)
        port = listener.getsockname()[1]
        settings = uvicorn.Config(
            Application(console, clusters).asgi(port=port),
            http="h11",  # refuses heads over 64 KiB
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
