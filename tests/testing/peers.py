"""Small protocols that tests of the simulated network talk with."""

import asyncio

from sparrowmq.testing.host import Host
from sparrowmq.testing.simulation import Simulation


class Peer(asyncio.Protocol):
    """Keeps what it gets and what happened to it."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self.pieces = 0
        self.events: list[str] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces += 1

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.append(exc)


class Echo(Peer):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Stubborn(Peer):
    """Keeps its side open when the other one closes."""

    def eof_received(self) -> bool | None:
        super().eof_received()
        return True


class Served:
    """A listening host and the protocols of the connections it accepted."""

    def __init__(
        self, sim: Simulation, host: Host, kind: type[Peer] = Peer, port: int = 9876
    ) -> None:
        self.peers: list[Peer] = []

        def accept() -> Peer:
            self.peers.append(kind())
            return self.peers[-1]

        async def listen() -> asyncio.AbstractServer:
            return await asyncio.get_running_loop().create_server(accept, "0.0.0.0", port)

        self.server = sim.run(listen(), on=host)


async def connect(host: str = "server", port: int = 9876, kind: type[Peer] = Peer) -> Peer:
    _, peer = await asyncio.get_running_loop().create_connection(kind, host, port)
    return peer
