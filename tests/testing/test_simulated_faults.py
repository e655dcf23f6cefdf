"""What happens to connections when paths are cut and hosts are paused, killed or powered off."""

import asyncio

import pytest

from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.simulation import Simulation
from tests.testing.peers import Echo, Peer, Served, connect

PATIENT = Conditions(latency_s=(0.01, 0.01), give_up_s=600)


def connected(sim: Simulation, kind: type[Peer] = Peer) -> tuple[Peer, Peer]:
    served = Served(sim, sim.host("server"), kind)
    peer = sim.run(connect(), on=sim.host("client"))
    sim.until_idle()
    return peer, served.peers[0]


def test_a_partition_holds_bytes_back_without_closing_connections() -> None:
    with Simulation(1, conditions=PATIENT) as sim:
        client, server = connected(sim)
        sim.paths.partition([sim.host("client")], [sim.host("server")])
        client.transport.write(b"held")
        server.transport.write(b"back")
        sim.advance(500)
        assert client.received + server.received == b""
        assert (client.lost, server.lost) == ([], [])
        sim.paths.heal()
        sim.until_idle()
        assert client.received == b"back"
        assert server.received == b"held"


def test_a_close_into_a_partition_leaves_the_other_end_half_open() -> None:
    with Simulation(1, conditions=PATIENT) as sim:
        client, server = connected(sim)
        sim.network.isolate(sim.host("client"))
        client.transport.close()
        sim.advance(3600)
        assert client.lost == [None]
        assert server.lost == []
        server.transport.write(b"are you there?")
        sim.advance(599)
        assert server.lost == []
        sim.advance(2)
        assert [type(error) for error in server.lost] == [TimeoutError]


def test_a_healed_path_restarts_the_timeout() -> None:
    with Simulation(1, conditions=PATIENT) as sim:
        client, server = connected(sim)
        sim.network.isolate(sim.host("client"))
        client.transport.write(b"first")
        sim.advance(500)
        sim.paths.heal()
        sim.advance(1)
        assert server.received == b"first"
        sim.network.isolate(sim.host("client"))
        client.transport.write(b"second")
        sim.advance(500)
        assert client.lost == []
        sim.advance(101)
        assert [type(error) for error in client.lost] == [TimeoutError]


def test_one_way_can_be_cut_alone() -> None:
    with Simulation(1, conditions=PATIENT) as sim:
        client, server = connected(sim, Echo)
        sim.paths.cut(sim.host("server"), sim.host("client"))
        client.transport.write(b"question")
        sim.advance(1)
        assert server.received == b"question"
        assert client.received == b""
        sim.paths.heal()
        sim.until_idle()
        assert client.received == b"question"


def test_connecting_into_a_partition_waits_and_succeeds_when_it_heals() -> None:
    with Simulation(1) as sim:
        Served(sim, sim.host("server"))
        client = sim.host("client")
        sim.network.isolate(client)
        attempt = client.start(connect())
        sim.advance(20)
        assert not attempt.done()
        sim.paths.heal()
        assert sim.wait(attempt).events == ["made"]
        assert 20 < sim.now_s < 32


def test_connecting_into_a_partition_times_out_after_two_minutes() -> None:
    with Simulation(1) as sim:
        Served(sim, sim.host("server"))
        sim.network.isolate(sim.host("client"))
        with pytest.raises(TimeoutError):
            sim.run(connect(), on=sim.host("client"))
        assert 127 <= sim.now_s < 128


def test_a_reset_reaches_both_ends() -> None:
    with Simulation(1) as sim:
        client, server = connected(sim)
        assert sim.network.reset_connections(sim.host("client"), sim.host("server")) == 1
        sim.until_idle()
        for peer in (client, server):
            assert [type(error) for error in peer.lost] == [ConnectionResetError]


def test_a_paused_host_accepts_and_takes_bytes_but_answers_only_when_resumed() -> None:
    conditions = Conditions(window_bytes=1000)
    with Simulation(1, conditions=conditions) as sim:
        served = Served(sim, sim.host("server"), Echo)
        sim.host("server").pause()
        client = sim.run(connect(), on=sim.host("client"))
        client.transport.set_write_buffer_limits(high=2000)
        client.transport.write(b"x" * 5000)
        sim.advance(3600)
        assert served.peers == []
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() == 4000
        sim.host("server").resume()
        sim.until_idle()
        assert bytes(client.received) == b"x" * 5000
        assert client.events == ["made", "pause", "resume"]


def test_a_paused_client_reads_nothing_until_it_is_resumed() -> None:
    with Simulation(1) as sim:
        client, server = connected(sim)
        sim.host("client").pause()
        server.transport.write(b"news")
        sim.advance(60)
        assert client.received == b""
        sim.host("client").resume()
        sim.until_idle()
        assert client.received == b"news"


def test_a_paused_host_hears_of_a_reset_when_it_is_resumed() -> None:
    with Simulation(1) as sim:
        client, server = connected(sim)
        sim.host("server").pause()
        sim.network.reset_connections(sim.host("client"))
        sim.until_idle()
        assert len(client.lost) == 1
        assert server.lost == []
        sim.host("server").resume()
        sim.until_idle()
        assert len(server.lost) == 1


def test_who_does_not_read_notices_a_reset_only_when_writing() -> None:
    with Simulation(1) as sim:
        client, server = connected(sim)
        server.transport.pause_reading()
        client.transport.pause_reading()
        server.transport.write(b"never read")
        sim.until_idle()
        client.transport.close()  # unread bytes, so the kernel says RST
        sim.advance(3600)
        assert server.lost == []
        server.transport.write(b"?")
        sim.until_idle()
        assert [type(error) for error in server.lost] == [ConnectionResetError]


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_host_loses_its_connections_its_ports_and_its_code(seed: int) -> None:
    with Simulation(seed) as sim:
        client, server = connected(sim)
        sim.host("server").kill()
        sim.until_idle()
        assert client.events[-1] == "lost"
        assert server.lost == [], "no code of a killed process runs"
        with pytest.raises(ConnectionRefusedError):
            sim.run(connect(), on=sim.host("client"))
        Served(sim, sim.host("server"))
        sim.run(connect(), on=sim.host("client"))


def test_kills_end_connections_by_close_or_by_reset() -> None:
    kinds = set()
    for seed in range(10):
        with Simulation(seed) as sim:
            client, _ = connected(sim)
            sim.host("server").kill()
            sim.until_idle()
            kinds.add(type(client.lost[0]))
    assert kinds == {type(None), ConnectionResetError}


def test_a_powered_off_host_is_silent_and_resets_old_connections_when_it_returns() -> None:
    with Simulation(1, conditions=PATIENT) as sim:
        client, _ = connected(sim)
        sim.host("server").power_off()
        client.transport.write(b"anybody?")
        sim.advance(300)
        assert client.lost == []
        with pytest.raises(RuntimeError, match="powered off"):
            sim.host("server").start(asyncio.sleep(0))
        sim.host("server").power_on()
        sim.until_idle()
        assert [type(error) for error in client.lost] == [ConnectionResetError]
        Served(sim, sim.host("server"))
        sim.run(connect(), on=sim.host("client"))


def test_a_silent_peer_never_notices_that_the_other_lost_power() -> None:
    with Simulation(1, conditions=PATIENT) as sim:
        client, _ = connected(sim)
        sim.host("server").power_off()
        sim.advance(60)
        sim.host("server").power_on()
        sim.advance(3600)
        assert client.lost == []


def test_latency_can_be_set_for_one_path() -> None:
    with Simulation(1) as sim:
        Served(sim, sim.host("server"))
        sim.paths.set_latency(sim.host("client"), sim.host("server"), 5, 5)
        sim.run(connect(), on=sim.host("other"))
        assert sim.now_s < 1
        sim.run(connect(), on=sim.host("client"))
        assert 10 <= sim.now_s < 11


def test_timers_of_a_killed_host_never_fire() -> None:
    fired: list[str] = []

    async def remind(text: str) -> None:
        await asyncio.sleep(10)
        fired.append(text)

    with Simulation(1) as sim:
        sim.host("a").start(remind("dead"))
        sim.host("b").start(remind("alive"))
        sim.advance(5)
        sim.host("a").kill()
        sim.advance(10)
        sim.host("a").start(remind("born again"))
        sim.advance(15)
        assert fired == ["alive", "born again"]
