"""The simulated network carries bytes as TCP does, in order and once, until something cuts it."""

import asyncio
import random
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrowmq.testing.errors import UnhandledError
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.simulation import Simulation
from tests.testing.peers import Echo, Peer, Served, Stubborn, connect


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    writes=st.lists(st.binary(max_size=5000), max_size=20),
    whole=st.sampled_from([0.0, 0.3, 1.0]),
    window_bytes=st.sampled_from([1, 7, 1000, 128 * 1024]),
)
def test_bytes_arrive_in_order_and_once_however_they_are_cut(
    seed: int, writes: list[bytes], whole: float, window_bytes: int
) -> None:
    conditions = Conditions(whole=whole, window_bytes=window_bytes)
    with Simulation(seed, conditions=conditions) as sim:
        served = Served(sim, sim.host("server"))
        peer = sim.run(connect(), on=sim.host("client"))
        for data in writes:
            peer.transport.write(data)
        peer.transport.close()
        sim.until_idle()
        assert bytes(served.peers[0].received) == b"".join(writes)
        assert served.peers[0].events[-2:] == ["eof", "lost"]
        assert served.peers[0].lost == peer.lost == [None]


def test_an_echo_comes_back_and_took_time() -> None:
    conditions = Conditions(latency_s=(1.0, 2.0))
    with Simulation(1, conditions=conditions) as sim:
        Served(sim, sim.host("server"), Echo)
        peer = sim.run(connect(), on=sim.host("client"))
        assert 2 <= sim.now_s <= 4
        before = sim.now_s
        peer.transport.write(b"hello")
        sim.until(lambda: bytes(peer.received) == b"hello")
        assert 2 <= sim.now_s - before <= 4


def test_writes_are_cut_into_pieces_and_joined_by_chance() -> None:
    def pieces(whole: float) -> int:
        with Simulation(3, conditions=Conditions(whole=whole)) as sim:
            served = Served(sim, sim.host("server"))
            peer = sim.run(connect(), on=sim.host("client"))
            peer.transport.write(b"x" * 10_000)
            sim.until_idle()
            assert len(served.peers[0].received) == 10_000
            return served.peers[0].pieces

    assert pieces(whole=1.0) == 1
    assert pieces(whole=0.0) > 3


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


def test_nobody_listening_refuses() -> None:
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


def test_streams_work_on_it_too() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(b"hello\n")
        answer = await reader.read()
        writer.close()
        return answer

    with Simulation(5) as sim:
        sim.run(asyncio.start_server(shout, "0.0.0.0", 7), on=sim.host("server"))
        assert sim.run(ask(), on=sim.host("client")) == b"HELLO\n"


def test_a_peer_that_does_not_read_stops_the_writer_until_it_reads() -> None:
    with Simulation(2, conditions=Conditions(window_bytes=10_000)) as sim:
        served = Served(sim, sim.host("server"))
        peer = sim.run(connect(), on=sim.host("client"))
        sim.until_idle()
        served.peers[0].transport.pause_reading()
        peer.transport.set_write_buffer_limits(high=5000, low=1000)
        peer.transport.write(b"a" * 12_000)
        sim.until_idle()
        assert peer.transport.get_write_buffer_size() == 2000
        assert peer.events == ["made"]
        peer.transport.write(b"b" * 8_000)
        assert peer.events == ["made", "pause"]
        sim.until_idle()
        assert served.peers[0].received == b""
        served.peers[0].transport.resume_reading()
        sim.until_idle()
        assert peer.events == ["made", "pause", "resume"]
        assert bytes(served.peers[0].received) == b"a" * 12_000 + b"b" * 8_000


def test_close_delivers_what_was_written_and_abort_does_not() -> None:
    with Simulation(2, conditions=Conditions(window_bytes=100)) as sim:
        served = Served(sim, sim.host("server"))
        closed = sim.run(connect(), on=sim.host("client"))
        closed.transport.write(b"c" * 1000)
        closed.transport.close()
        closed.transport.write(b"too late")
        assert closed.transport.is_closing()
        sim.until_idle()
        assert bytes(served.peers[0].received) == b"c" * 1000
        aborted = sim.run(connect(), on=sim.host("client"))
        aborted.transport.write(b"d" * 1000)
        aborted.transport.abort()
        sim.until_idle()
        assert len(served.peers[1].received) <= 100
        assert closed.lost == aborted.lost == [None]
        assert served.peers[1].events[-1] == "lost"


def test_closing_with_unread_bytes_resets_the_peer() -> None:
    with Simulation(2) as sim:
        served = Served(sim, sim.host("server"))
        peer = sim.run(connect(), on=sim.host("client"))
        sim.until_idle()
        served.peers[0].transport.pause_reading()
        peer.transport.write(b"unread")
        sim.until_idle()
        served.peers[0].transport.close()
        sim.until_idle()
        assert [type(error) for error in peer.lost] == [ConnectionResetError]


def test_bytes_for_an_end_that_is_gone_come_back_as_a_reset() -> None:
    with Simulation(2, conditions=Conditions(latency_s=(1, 1))) as sim:
        served = Served(sim, sim.host("server"))
        peer = sim.run(connect(kind=Stubborn), on=sim.host("client"))
        sim.until_idle()
        served.peers[0].transport.close()
        sim.advance(0.5)
        peer.transport.write(b"on its way while the goodbye comes")
        sim.until_idle()
        assert [type(error) for error in peer.lost] == [ConnectionResetError]


def test_a_protocol_that_fails_loses_its_connection_and_fails_the_run() -> None:
    class Broken(Peer):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    with Simulation(2) as sim:
        served = Served(sim, sim.host("server"), Broken)
        peer = sim.run(connect(), on=sim.host("client"))
        peer.transport.write(b"x")
        with pytest.raises(UnhandledError, match="data_received"):
            sim.until_idle()
        sim.until_idle()
        assert served.peers[0].lost == [None]


def test_a_cancelled_connect_leaves_no_connection_behind() -> None:
    with Simulation(2, conditions=Conditions(latency_s=(1, 1))) as sim:
        served = Served(sim, sim.host("server"))

        async def impatient() -> None:
            async with asyncio.timeout(1.5):
                await connect()

        with pytest.raises(TimeoutError):
            sim.run(impatient(), on=sim.host("client"))
        sim.until_idle()
        assert served.peers[0].events == ["made", "eof", "lost"]
        assert sim.network.connections(sim.host("server")) == []


def test_ssl_and_ready_made_sockets_are_refused() -> None:
    with Simulation(1) as sim, pytest.raises(NotImplementedError, match="ssl"):
        sim.run(sim.loop.create_connection(Peer, "server", 1, ssl=True))


def run_a_busy_world(seed: int) -> tuple[int, list[str]]:
    """Many connections, writes, cuts and kills, all from the seed."""
    with Simulation(seed, conditions=Conditions(window_bytes=3000)) as sim:
        rng = sim.rng("scenario")
        Served(sim, sim.host("server"), Echo)

        async def chat() -> None:
            peer = await connect()
            for _ in range(rng.randrange(20)):
                peer.transport.write(rng.randbytes(rng.randrange(4000)))
                await asyncio.sleep(rng.random())

        async def many() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(chat())

        hosts = [sim.host(f"client-{number}") for number in range(4)]
        for host in hosts:
            host.start(many())
        for _ in range(10):
            sim.advance(rng.random())
            act(rng, sim)
        return sim.network.trace_crc, list(sim.network.trace)


def act(rng: random.Random, sim: Simulation) -> None:
    host = sim.host(f"client-{rng.randrange(4)}")
    match rng.randrange(6):
        case 0:
            host.pause()
        case 1:
            host.resume()
        case 2:
            sim.network.isolate(host)
        case 3:
            sim.paths.heal()
        case 4:
            sim.network.reset_connections(host)
        case _:
            host.kill()


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    crc, trace = run_a_busy_world(seed)
    assert len(trace) > 50
    assert run_a_busy_world(seed) == (crc, trace)


def test_another_seed_gives_another_trace() -> None:
    assert len({run_a_busy_world(seed)[0] for seed in range(5)}) == 5


def test_a_failure_says_its_seed_and_time() -> None:
    with pytest.raises(AssertionError) as caught, Simulation(4711) as sim:
        sim.advance(12.5)
        raise AssertionError("the test's own")
    assert caught.value.__notes__ == [
        "simulation seed 4711, at 12.500000 s of virtual time",
    ]


def test_what_failed_first_is_raised_and_what_followed_is_noted() -> None:
    async def fail() -> None:
        raise LookupError("unnoticed")

    with pytest.raises(AssertionError) as caught, Simulation(1) as sim:
        sim.host("server").start(fail())
        sim.until_idle()
        raise AssertionError("the test's own")
    assert "unnoticed" in caught.value.__notes__[0]


def test_a_failed_task_that_nobody_waited_for_fails_the_simulation() -> None:
    async def fail() -> None:
        raise LookupError("unnoticed")

    with pytest.raises(UnhandledError, match="unnoticed") as caught, Simulation(1) as sim:
        sim.host("server").start(fail())
        sim.until_idle()
    assert "seed 1" in caught.value.__notes__[0]
