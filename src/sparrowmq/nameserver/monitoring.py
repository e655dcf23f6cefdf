"""The pages of a name server, on a separate port: /metrics, /healthz, /readyz."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq import __version__
from sparrowmq.metrics import families
from sparrowmq.metrics.request_times import RequestTimes
from sparrowmq.metrics.text import CONTENT_TYPE, MetricsText
from sparrowmq.nameserver.server import NameServer
from sparrowmq.net.health import Check, alive, is_fine, ready
from sparrowmq.net.http_server import HttpAnswer, HttpServer, page_address

log = logging.getLogger(__name__)


@asynccontextmanager
async def monitored(server: NameServer) -> AsyncIterator[None]:
    """Serve a running name server's pages while the block runs, unless they are switched off."""
    port = server.config.wanted_metrics_port
    if port is None:
        yield
        return
    monitoring = NameServerMonitoring(server)
    async with asyncio.TaskGroup() as tasks:
        http = HttpServer(monitoring.pages, tasks, log=log)
        host = server.config.metrics_listen_host
        server.metrics_port = await http.listen_or_elsewhere(host, port)
        log.info("metrics at %s", page_address(host, server.metrics_port, "/metrics"))
        timing = tasks.create_task(monitoring.times.run())
        try:
            yield
        finally:
            server.metrics_port = 0
            timing.cancel()
            await http.close()


def readiness(server: NameServer) -> list[Check]:
    """The checks that decide whether clients can use this name server."""
    fault = "" if server.is_in_service else "brokers may be missing so soon after the start"
    return [Check("it gives out routes", fault)]


class NameServerMonitoring:
    """The name server's pages."""

    def __init__(self, server: NameServer) -> None:
        self._server = server
        self.times = RequestTimes(server.endpoint)
        self.pages = {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}

    async def healthz(self) -> HttpAnswer:
        """Whether the name server is alive: always, if it answers."""
        return alive([Check("it answers")])

    async def readyz(self) -> HttpAnswer:
        """Whether clients can use it."""
        return ready(readiness(self._server))

    async def metrics(self) -> HttpAnswer:
        """The page that Prometheus reads."""
        server = self._server
        live = server.table.live.values()
        now_ms = server.clock()
        page = MetricsText({"node_id": server.address, "node_type": "nameserver"})
        await page.add(families.BUILD, [(("nameserver", __version__), 1)])
        await page.add(families.IS_READY, [((), int(is_fine(readiness(server))))])
        await page.add(families.CONNECTIONS, [((), len(server.endpoint.connections))])
        clusters = Counter(server.table.groups[broker.broker_name].cluster for broker in live)
        await page.add(families.NAMED_BROKERS, [((name,), many) for name, many in clusters.items()])
        await page.add(families.NAMED_TOPICS, [((), len(server.table.topics))])
        silence = [
            (
                (str(broker.broker_id), broker.broker_name),
                max(0, now_ms - broker.last_seen_ms) / 1000,
            )
            for broker in live
        ]
        await page.add(families.BROKER_SILENCE, silence)
        await page.add_histograms(families.RPC_LATENCY, self.times.rows())
        return HttpAnswer(page.parts, content_type=CONTENT_TYPE)
