"""A network of named hosts in memory: listeners, connections, and data in flight.

Each host has a unique address, and `127.0.0.1` means the host that uses it. Code outside
any host (the test itself) counts as the host `test`.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import zlib
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context

from sparrowmq.testing.host import Host
from sparrowmq.testing.memory_listener import Listener, ProtocolFactory
from sparrowmq.testing.memory_stream import Signal, Stream
from sparrowmq.testing.memory_transport import Address, MemoryTransport
from sparrowmq.testing.paths import Conditions, Paths
from sparrowmq.testing.process import PROCESS
from sparrowmq.testing.virtual_time import VirtualLoop

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = (None, "", "0.0.0.0", "::")
SYN_RETRIES_S = (1, 2, 4, 8, 16, 32, 64)  # Linux: tcp_syn_retries = 6, then ETIMEDOUT after 127 s
TRACE_LINES = 10_000


class MemoryNetwork:
    """Hosts, listeners and connections on a virtual loop. All randomness comes from `rng`."""

    def __init__(
        self, loop: VirtualLoop, rng: random.Random, conditions: Conditions | None = None
    ) -> None:
        self.loop = loop
        self.conditions = conditions or Conditions()
        self.paths = Paths(rng, self.conditions, self.paths_opened)
        self.context = Context()
        """Events of kernels and wires belong to no process, so no process stops them."""
        self.in_flight = 0
        """The number of events in flight; 0 when only timers of processes are left."""
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.trace_crc = 0
        self._rng = rng
        self._hosts: dict[str, Host] = {}
        self._listeners: dict[tuple[Host, int], Listener] = {}
        self._transports: dict[MemoryTransport, None] = {}

    # Hosts

    def host(self, name: str) -> Host:
        """The host of that name, created if it does not exist."""
        host = self._hosts.get(name)
        if host is None:
            number = len(self._hosts) + 1
            host = Host(self, name, f"10.0.{number // 250}.{number % 250 + 1}")
            self._hosts[name] = host
        return host

    def here(self) -> Host:
        """The host of the running code."""
        process = PROCESS.get()
        return self.host("test" if process is None else process.name)

    def find(self, name: str) -> Host:
        """The host of that name or address. Raises `socket.gaierror` when there is none."""
        if name in LOOPBACK:
            return self.here()
        for host in self._hosts.values():
            if name in (host.name, host.ip):
                return host
        raise socket.gaierror(socket.EAI_NONAME, f"no simulated host is called {name!r}")

    def isolate(self, host: Host) -> None:
        """Cut the host off, both ways, from every other one that exists by now."""
        others = [other for other in self._hosts.values() if other is not host]
        self.paths.partition([host], others)

    # Connections

    def connections(self, host: Host) -> list[MemoryTransport]:
        """The ends of connections that the host's kernel knows, oldest first."""
        return [transport for transport in self._transports if transport.host is host]

    def reset_connections(self, host: Host, peer: Host | None = None) -> int:
        """Break the host's connections (to the peer, if given) at both ends; returns how many."""
        broken = [each for each in self.connections(host) if peer in (None, each.peer.host)]
        for transport in broken:
            for end in (transport, transport.peer):
                end.out.drop()
                if not end.is_gone:
                    end.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return len(broken)

    def listen(self, factory: ProtocolFactory, address: str | None, port: int) -> Listener:
        """Raises `OSError` when the address is not the host's or the port is taken."""
        host = self.here()
        local_only = address in LOOPBACK
        if address not in EVERYWHERE and self.find(str(address)) is not host:
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is not an address of {host.name}")
        port = port or host.free_port()
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host.name}:{port} is in use")
        listener = Listener(self, host, port, factory, local_only=local_only)
        self._listeners[host, port] = listener
        self.record("listen", host, port)
        return listener

    async def connect(
        self, factory: ProtocolFactory, address: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Raises `OSError` as the socket would: refused, timed out, unknown host."""
        here, there = self.here(), self.find(address)
        await self._knock(here, there)
        listener = self._listeners.get((there, port))
        is_local = address in LOOPBACK
        is_listening = listener is not None and listener.is_serving()
        if listener is None or not is_listening or (listener.local_only and not is_local):
            await self._travel(there, here)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{address}:{port} refuses")
        transport = self._establish(here, listener, "127.0.0.1" if is_local else None)
        try:
            await self._travel(there, here)
            protocol = factory()
            transport.open(protocol)
        except BaseException:
            transport.forget(goodbye=Signal.FIN)
            raise
        return transport, protocol

    async def _knock(self, here: Host, there: Host) -> None:
        for retry_s in SYN_RETRIES_S:
            await self._travel(here, there)
            if self.paths.is_open(here, there) and self.paths.is_open(there, here):
                return
            await asyncio.sleep(retry_s)
        raise TimeoutError(errno.ETIMEDOUT, f"connecting to {there.name} timed out")

    def _establish(self, here: Host, listener: Listener, local: str | None) -> MemoryTransport:
        client: Address = (local or here.ip, here.free_port())
        server: Address = (local or listener.host.ip, listener.port)
        mine = MemoryTransport(self, here, context=copy_context(), sockname=client, peername=server)
        theirs = MemoryTransport(
            self, listener.host, context=listener.context, sockname=server, peername=client
        )
        mine.peer, theirs.peer = theirs, mine
        mine.out, theirs.out = Stream(self, mine, theirs), Stream(self, theirs, mine)
        self._transports[mine] = self._transports[theirs] = None
        self.record("connect", mine, theirs)
        self.loop.call_soon(listener.accept, theirs, context=listener.context)
        return mine

    # What hosts, listeners and transports report

    def forget_listener(self, listener: Listener) -> None:
        self._listeners.pop((listener.host, listener.port), None)

    def forget_transport(self, transport: MemoryTransport) -> None:
        self._transports.pop(transport, None)

    def forget_process(self, host: Host, goodbye: Signal | None) -> None:
        """Close everything that the host's process had open, as its kernel would."""
        for listener in [each for each in self._listeners.values() if each.host is host]:
            listener.close()
        for transport in self.connections(host):
            transport.forget(goodbye=goodbye and self._rng.choice((goodbye, Signal.FIN)))

    def paths_opened(self) -> None:
        """Some path may work again: let every stream retry."""
        for transport in list(self._transports):
            transport.out.path_changed()
            transport.peer.out.path_changed()

    def piece_bytes(self, available: int) -> int:
        """How many of the available bytes go in one piece."""
        if available <= 1 or self._rng.random() < self.conditions.whole:
            return available
        return self._rng.randint(1, available)

    # Events

    def at(self, when: float, callback: Callable[[], object]) -> None:
        """Schedule an event of the network, independent of processes."""

        def happen() -> None:
            self.in_flight -= 1
            callback()

        self.in_flight += 1
        self.loop.call_at(when, happen, context=self.context)

    async def _travel(self, source: Host, target: Host) -> None:
        """Wait as long as a segment takes from source to target."""
        arrived: asyncio.Future[None] = self.loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self.at(self.loop.time() + self.paths.latency_s(source, target), arrive)
        await arrived

    def record(self, event: str, *facts: object) -> None:
        """Add a line to the trace, whose checksum shows whether two runs were identical."""
        line = " ".join([f"{self.loop.time():.9f}", event, *map(_fact, facts)])
        self.trace.append(line)
        self.trace_crc = zlib.crc32(line.encode(), self.trace_crc)


def _fact(fact: object) -> str:
    match fact:
        case Host():
            return fact.name
        case MemoryTransport():
            return f"{fact.host.name}:{fact.sockname[1]}"
        case bytes():
            return f"{len(fact)} bytes {zlib.crc32(fact):08x}"
        case Signal():
            return fact.value
        case _:
            return str(fact)
