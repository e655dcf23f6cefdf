"""The pages of a broker, on a port of their own: /healthz, /readyz."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq.broker.monitoring.health import liveness, readiness
from sparrowmq.broker.server import BrokerServer
from sparrowmq.net.health import alive, ready
from sparrowmq.net.http_server import HttpAnswer, HttpServer


@asynccontextmanager
async def monitored(server: BrokerServer) -> AsyncIterator[None]:
    """Serve the pages of a running broker while the block runs; nothing where they are off."""
    port = server.config.wanted_metrics_port
    if port is None:
        yield
        return
    pages = _Pages(server)
    async with asyncio.TaskGroup() as tasks:
        http = HttpServer(
            {"/healthz": pages.healthz, "/readyz": pages.readyz}, tasks, log=server.broker.log
        )
        host = server.config.metrics_listen_host
        try:
            server.metrics_port = await http.listen_or_elsewhere(host, port)
            yield
        finally:
            server.metrics_port = 0
            await http.close()


class _Pages:
    def __init__(self, server: BrokerServer) -> None:
        self._server = server

    async def healthz(self) -> HttpAnswer:
        return alive(liveness(self._server.broker))

    async def readyz(self) -> HttpAnswer:
        return ready(readiness(self._server.broker, self._server.registration))
