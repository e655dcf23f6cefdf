"""The HA port holds as many connections as slaves need, whatever else connects there."""

from collections.abc import Iterator

import pytest

from sparrowmq.broker.config import ReplicationMode, ReplicationPeer
from sparrowmq.broker.replication.slave_link import MOST_NEWCOMERS, MOST_SLAVES, SILENCE_S
from sparrowmq.protocol.ha import encode_offset, encode_token
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.broker.replication.fake_slave import FakeSlave

FLOOD = 4 * MOST_NEWCOMERS


@pytest.fixture
def sim() -> Iterator[RunningCluster]:
    """A master without slaves, whose sends want two copies."""
    with SimCluster(replication=ReplicationMode.SYNC).run() as sim:
        yield sim


def connected(sim: RunningCluster, *pieces: bytes, many: int = FLOOD) -> list[FakeSlave]:
    """Connections that begin with these bytes."""
    slaves = [FakeSlave(sim, 100) for _ in range(many)]
    for slave in slaves:
        slave.connect(*pieces)
    sim.advance(0.1)
    return slaves


def still_open(slaves: list[FakeSlave]) -> int:
    return sum(not slave.is_closed for slave in slaves)


@pytest.mark.parametrize("pieces", [(), (b"G",), (encode_token(bytes(16)),)])
def test_unidentified_connections_make_room_for_the_next(
    pieces: tuple[bytes, ...], sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    flood = connected(sim, *pieces)
    assert still_open(flood) == MOST_NEWCOMERS
    assert not any(slave.is_closed for slave in flood[-MOST_NEWCOMERS:]), "the oldest go first"
    slave = FakeSlave(sim, 1)
    slave.connect(encode_token(slave.hello()), encode_offset(0))
    sim.until(lambda: 1 in sim.broker.replication.feed.links)
    said = [line for line in caplog.messages if "HA port" in line]
    assert len(said) == 1, "a flood of connections must not flood the log"
    assert f"{MOST_NEWCOMERS} connections" in said[0]


def test_a_slave_that_follows_is_not_pushed_out(sim: RunningCluster) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(encode_token(slave.hello()), encode_offset(0))
    sim.until(lambda: 1 in sim.broker.replication.feed.links)
    connected(sim)
    assert not slave.is_closed


def test_a_connection_that_trickles_bytes_times_out_like_a_silent_one(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    began_s = sim.now_s
    (slave,) = connected(sim, many=1)
    for _ in range(4):  # of the 8 bytes of an offset
        sim.advance(SILENCE_S / 5)
        slave.transport.write(b"\0")
    sim.until(lambda: slave.is_closed)
    assert sim.now_s - began_s < SILENCE_S + 1
    assert not sim.broker.replication.feed.links
    assert f"presented nothing within {SILENCE_S:.0f} s" in caplog.text


def test_strangers_are_fed_up_to_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(replication_peer=ReplicationPeer.APACHE).run() as sim:
        strangers = []
        for number in range(MOST_SLAVES + 2):
            strangers.append(FakeSlave(sim, number))
            strangers[-1].connect(encode_offset(0))
        sim.advance(0.1)
        assert still_open(strangers) == MOST_SLAVES == len(sim.broker.replication.feed.links)
        assert f"{MOST_SLAVES} slaves follow, which is the limit" in caplog.text
