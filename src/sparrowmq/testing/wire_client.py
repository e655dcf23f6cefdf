"""A client on a simulated host: each of its requests is a task, `sim.wait` gives its result."""

from __future__ import annotations

import asyncio
from typing import Any

from sparrowmq.net.calls import Response
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.send import MessageSent
from sparrowmq.testing.simulation import Simulation
from sparrowmq.testing.virtual_tasks import SimTask
from sparrowmq.testing.wire import CALL_S, Wire, WirePull, wire


class WireClient:
    """Requests go to the first broker unless `address` says otherwise; see `Wire` for the rest."""

    def __init__(self, sim: Simulation, name: str, broker_address: str) -> None:
        self.name = name
        self.host = sim.host(name)
        self._sim = sim
        self._broker_address = broker_address
        self._wire: Wire

    def start(self) -> None:
        """Start the client; also restarts it after the host was killed."""
        ready = asyncio.Event()
        self.host.start(self._live(ready), name=f"{self.name} connections")
        self._sim.until(ready.is_set)

    async def _live(self, ready: asyncio.Event) -> None:
        async with wire(self.name, self._sim.clock) as self._wire:
            ready.set()
            await asyncio.Event().wait()

    def disconnect(self) -> None:
        """Close every connection."""
        self._wire.disconnect()

    def call(
        self,
        header: RequestHeader,
        body: bytes = b"",
        *,
        address: str = "",
        timeout_s: float = CALL_S,
    ) -> SimTask[Response]:
        """Send any request."""
        to = address or self._broker_address
        return self.host.start(self._wire.call(to, header, body, timeout_s=timeout_s))

    def send_oneway(
        self, header: RequestHeader, body: bytes = b"", *, address: str = ""
    ) -> SimTask[None]:
        """Send any request and expect no answer."""
        to = address or self._broker_address
        return self.host.start(self._wire.send_oneway(to, header, body))

    def send(
        self, topic: str, body: bytes, *, queue_id: int = 0, address: str = "", **properties: str
    ) -> SimTask[MessageSent]:
        """Send a message."""
        to = address or self._broker_address
        return self.host.start(self._wire.send(to, topic, body, queue_id=queue_id, **properties))

    def pull(self, topic: str, *, address: str = "", **options: Any) -> SimTask[WirePull]:
        """Pull; options as for `Wire.pull`."""
        return self.host.start(self._wire.pull(address or self._broker_address, topic, **options))
