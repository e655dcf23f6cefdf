"""Pages for monitoring, read as Prometheus and probes read them, on a simulated host."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparrowmq.broker.monitoring.monitoring import monitored
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.world import World, world_with

PORT = 5557


class _Visitor(asyncio.Protocol):
    def __init__(self, path: str) -> None:
        self._path = path
        self._read = b""
        self.whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"GET {self._path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self._read += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.whole.set_result(self._read)


async def get(path: str, port: int = PORT) -> tuple[int, str]:
    """Status and body of a page of this host."""
    loop = asyncio.get_running_loop()
    _, visitor = await loop.create_connection(lambda: _Visitor(path), "127.0.0.1", port)
    head, _, body = (await visitor.whole).decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


class MonitoredWorld(World):
    """A broker whose pages are served."""

    @property
    def node(self) -> BrokerNode:
        return next(iter(self.sim.brokers.values()))

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page."""
        return self.sim.run(get(path), on=self.node.host)


async def monitor(node: BrokerNode) -> None:
    """Serve the pages of a broker until cancelled."""
    async with monitored(node.server):
        await asyncio.Event().wait()


@contextmanager
def monitored_world(**settings: Any) -> Iterator[MonitoredWorld]:
    """The world, with its broker's pages."""
    with world_with(**settings) as plain:
        world = MonitoredWorld(plain.sim)
        world.node.host.start(monitor(world.node), name="monitoring")
        world.sim.until(lambda: world.node.server.metrics_port != 0)
        yield world
