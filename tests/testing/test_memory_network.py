"""The simulated network carries bytes as TCP does, in order and once, until something cuts it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.testing.errors import UnhandledError
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.simulation import Simulation
from tests.testing.peers import Echo, Peer, Served, Stubborn, connect


@given(
    seed=st.integers(0, 2**32),
    writes=st.lists(st.binary(max_size=5000), max_size=20),
    whole=st.sampled_from([0.0, 0.3, 1.0]),
    window_bytes=st.sampled_from([1, 7, 1000, 128 * 1024]),
)
def test_bytes_arrive_in_order_and_once_for_any_fragmentation(
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


def test_an_echo_comes_back_after_some_time() -> None:
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
