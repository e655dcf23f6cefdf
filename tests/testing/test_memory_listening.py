"""Listening and connecting in the simulated network: addresses, ports and refusals."""

import asyncio
import socket

import pytest

from sparrowmq.testing.simulation import Simulation
from tests.testing.peers import Peer, Served, connect


def test_addresses_name_both_ends() -> None:
    with Simulation(1) as sim:
        server, client = sim.host("server"), sim.host("client")
        served = Served(sim, server)
        peer = sim.run(connect(), on=client)
        sim.until_idle()
        mine, theirs = peer.transport, served.peers[0].transport
        assert mine.get_extra_info("peername") == (server.ip, 9876)
        assert theirs.get_extra_info("peername") == mine.get_extra_info("sockname")
        assert mine.get_extra_info("sockname")[0] == client.ip
        assert mine.get_extra_info("sslcontext") is None


def test_port_0_gives_a_free_port() -> None:
    async def listen(loop: asyncio.AbstractEventLoop) -> int:
        server = await loop.create_server(Peer, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    with Simulation(1) as sim:
        host = sim.host("server")
        ports = {sim.run(listen(sim.loop), on=host) for _ in range(5)}
        assert len(ports) == 5
        peer = sim.run(connect("127.0.0.1", min(ports)), on=host)
        assert peer.transport.get_extra_info("peername") == ("127.0.0.1", min(ports))


def test_connecting_without_a_listener_is_refused() -> None:
    with Simulation(1) as sim:
        sim.host("server")
        with pytest.raises(ConnectionRefusedError):
            sim.run(connect())
        served = Served(sim, sim.host("server"))
        sim.run(connect())
        served.server.close()
        with pytest.raises(ConnectionRefusedError):
            sim.run(connect())


def test_a_loopback_listener_serves_its_own_host_only() -> None:
    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 9876)

    with Simulation(1) as sim:
        sim.run(listen(), on=sim.host("server"))
        sim.run(connect("localhost"), on=sim.host("server"))
        with pytest.raises(ConnectionRefusedError):
            sim.run(connect("server"), on=sim.host("client"))


def test_a_taken_port_and_a_foreign_address_cannot_be_listened_on() -> None:
    async def listen(address: str) -> None:
        await asyncio.get_running_loop().create_server(Peer, address, 9876)

    with Simulation(1) as sim:
        server = sim.host("server")
        sim.host("other")
        sim.run(listen("server"), on=server)
        with pytest.raises(OSError, match="in use"):
            sim.run(listen("0.0.0.0"), on=server)
        with pytest.raises(OSError, match="not an address of server"):
            sim.run(listen("other"), on=server)


def test_an_unknown_host_is_a_failed_lookup() -> None:
    with Simulation(1) as sim, pytest.raises(socket.gaierror):
        sim.run(connect("nowhere"))


def test_ssl_and_ready_made_sockets_are_refused() -> None:
    with Simulation(1) as sim, pytest.raises(NotImplementedError, match="ssl"):
        sim.run(sim.loop.create_connection(Peer, "server", 1, ssl=True))
