"""A listening port on the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrowmq.testing.memory_stream import Signal
from sparrowmq.testing.memory_transport import Address, MemoryTransport

if TYPE_CHECKING:
    from sparrowmq.testing.host import Host
    from sparrowmq.testing.memory_network import MemoryNetwork

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """The part of a socket that callers use."""

    address: Address

    def getsockname(self) -> Address:
        return self.address


class Listener(asyncio.AbstractServer):
    """What `create_server` returns; like asyncio's, closing it leaves connections alone."""

    def __init__(
        self,
        network: MemoryNetwork,
        host: Host,
        port: int,
        factory: ProtocolFactory,
        *,
        local_only: bool,
    ) -> None:
        self.host = host
        self.port = port
        self.local_only = local_only
        self.context = copy_context()
        """Accepted connections' protocols run in this context, and so in the listener's process."""
        self._network = network
        self._factory = factory
        self._is_open = True
        self._is_serving = False

    @property
    def sockets(self) -> tuple[ListeningSocket, ...]:
        address = ("127.0.0.1" if self.local_only else self.host.ip, self.port)
        return (ListeningSocket(address),) if self._is_open else ()

    def accept(self, transport: MemoryTransport) -> None:
        if not self._is_serving:
            transport.forget(goodbye=Signal.RST)
        elif not transport.is_gone:
            transport.open(self._factory())

    def close(self) -> None:
        if self._is_open:
            self._is_open = self._is_serving = False
            self._network.forget_listener(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._is_serving

    async def start_serving(self) -> None:
        """Accept connections; before that, they are refused."""
        self._is_serving = self._is_open

    async def serve_forever(self) -> None:
        try:
            await self._network.loop.create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Return at once: nothing remains after `close`."""
