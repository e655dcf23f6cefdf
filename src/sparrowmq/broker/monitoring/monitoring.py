"""The monitoring pages of a broker, on a separate port: /metrics, /healthz, /readyz.

Everything that they need runs here, and only while they are served.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq.broker.monitoring.health import liveness, readiness
from sparrowmq.broker.monitoring.lag import LagSamples
from sparrowmq.broker.monitoring.page import CREATIONS, BrokerPage
from sparrowmq.broker.monitoring.traffic_figures import TrafficMetrics
from sparrowmq.broker.server import BrokerServer
from sparrowmq.metrics.request_times import RequestTimes
from sparrowmq.metrics.text import CONTENT_TYPE, LoopSlices
from sparrowmq.net.health import alive, ready
from sparrowmq.net.http_server import HttpAnswer, HttpServer, page_address

_LOOK_S = 5.0
"""How often traffic is counted: new units stay in memory for longer."""


@asynccontextmanager
async def monitored(server: BrokerServer) -> AsyncIterator[None]:
    """Serve the pages of a running broker while the block runs, unless they are switched off."""
    port = server.config.wanted_metrics_port
    if port is None:
        yield
        return
    monitoring = BrokerMonitoring(server)
    async with asyncio.TaskGroup() as tasks:
        http = HttpServer(monitoring.pages, tasks, log=server.broker.log)
        host = server.config.metrics_listen_host
        server.metrics_port = await http.listen_or_elsewhere(host, port)
        address = page_address(host, server.metrics_port, "/metrics")
        server.broker.log.info("metrics at %s", address)
        loops = [tasks.create_task(loop()) for loop in monitoring.loops]
        try:
            yield
        finally:
            server.metrics_port = 0
            for loop in loops:
                loop.cancel()
            await http.close()


class BrokerMonitoring:
    """The pages, and the loops that collect their data."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._traffic = TrafficMetrics(server.broker)
        self.lag = LagSamples(server.broker)
        self._times = RequestTimes(server.endpoint, CREATIONS)
        self._page = BrokerPage(server, self._traffic, self.lag, self._times)
        self.pages = {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}
        self.loops = (self._follow_traffic, self.lag.run, self._times.run)

    async def _follow_traffic(self) -> None:
        while True:
            await self._traffic.look(LoopSlices())
            await asyncio.sleep(_LOOK_S)

    async def metrics(self) -> HttpAnswer:
        """The page for Prometheus."""
        return HttpAnswer(await self._page.text(), content_type=CONTENT_TYPE)

    async def healthz(self) -> HttpAnswer:
        """Whether the broker is alive."""
        return alive(liveness(self._server.broker))

    async def readyz(self) -> HttpAnswer:
        """Whether clients can use the broker."""
        return ready(readiness(self._server.broker, self._server.registration))
