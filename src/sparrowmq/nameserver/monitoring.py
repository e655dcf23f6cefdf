"""The pages of a name server, on a port of their own: /healthz, /readyz."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq.nameserver.server import NameServer
from sparrowmq.net.health import Check, alive, ready
from sparrowmq.net.http_server import HttpAnswer, HttpServer

log = logging.getLogger(__name__)


@asynccontextmanager
async def monitored(server: NameServer) -> AsyncIterator[None]:
    """Serve the pages of a running name server while the block runs; nothing where they are off."""
    port = server.config.wanted_metrics_port
    if port is None:
        yield
        return
    pages = _Pages(server)
    async with asyncio.TaskGroup() as tasks:
        http = HttpServer({"/healthz": pages.healthz, "/readyz": pages.readyz}, tasks, log=log)
        host = server.config.metrics_listen_host
        try:
            server.metrics_port = await http.listen_or_elsewhere(host, port)
            yield
        finally:
            server.metrics_port = 0
            await http.close()


def readiness(server: NameServer) -> list[Check]:
    """What clients need of this name server."""
    fault = "" if server.is_in_service else "brokers may be missing so soon after the start"
    return [Check("it gives out routes", fault)]


class _Pages:
    def __init__(self, server: NameServer) -> None:
        self._server = server

    async def healthz(self) -> HttpAnswer:
        return alive([Check("it answers")])

    async def readyz(self) -> HttpAnswer:
        return ready(readiness(self._server))
