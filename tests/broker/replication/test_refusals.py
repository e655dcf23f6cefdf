"""A broker that may not follow keeps trying; both sides log that rarely."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparrowmq.episodes import Causes
from sparrowmq.protocol.ha import encode_offset
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.replication.fake_slave import FakeSlave

MINUTES = 5


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def refused_slave(sim: RunningCluster) -> None:
    slave = sim.brokers["broker-a.1"]
    slave.stop()
    slave.config = replace(slave.config, cluster_name="another")
    slave.start()
    sim.advance(60.0 * MINUTES)


def twin(sim: RunningCluster) -> None:
    """Another machine whose operator took over a slave's configuration, with its id."""
    first = sim.brokers["broker-a.1"]
    node = BrokerNode(sim, replace(first.config, broker_name="twin"))
    node.config = replace(first.config, advertise_host=node.host.ip)
    node.start()
    sim.advance(60.0 * MINUTES)
    assert sim.broker.replication.known_slaves.addresses == {1: first.address}
    assert 1 in sim.broker.replication.feed.links


def stranger(sim: RunningCluster) -> None:
    """Sends no hello, and reconnects every 5 s, as Apache's slave does."""
    for _ in range(12 * MINUTES):
        slave = FakeSlave(sim, 7)
        slave.connect(encode_offset(0))
        sim.advance(5.0)
        assert slave.is_closed


@pytest.mark.slow
@pytest.mark.parametrize("who", [refused_slave, twin, stranger], ids=lambda who: who.__name__)
def test_a_refusal_is_logged_once_a_minute(
    who: Callable[[RunningCluster], None], caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: bool(sim.broker.replication.feed.links))
        who(sim)
        assert MINUTES <= lines(caplog, "as a follower") <= MINUTES + 1
        assert lines(caplog, "not following a master") <= MINUTES + 2


def test_a_slave_with_a_full_disk_does_not_connect_and_logs_it_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: bool(sim.broker.replication.feed.links))
        slave = sim.brokers["broker-a.1"]
        used = slave.disk.usage().total_bytes - slave.disk.usage().free_bytes
        slave.disk.capacity_bytes = used
        for _ in range(12):
            sim.wait(sim.client.send("orders", bytes(200_000)))
        follower = slave.broker.replication.follower
        assert follower is not None
        sim.advance(60.0)
        before = follower.times_followed
        sim.advance(60.0)
        assert follower.times_followed == before
        assert 1 <= lines(caplog, "not following a master") <= 5
        assert lines(caplog, "follows no longer") <= 2, "the master logs every connection"
        assert list(sim.broker.replication.known_slaves.slaves) == [1]
        slave.disk.capacity_bytes = None
        end = sim.broker.store.max_log_offset
        sim.until(lambda: slave.broker.store.max_log_offset == end)


@pytest.mark.parametrize(
    ("reasons", "logged"),
    [
        (["ends at 1,000, past 900", "ends at 1,000, past 950"], 1),
        (["the cluster differs", "the logs differ from offset 7 on"], 2),
        (["the logs differ from offset 7 on", "the cluster differs"] * 2, 2),
    ],
    ids=["only numbers differ", "two causes", "two causes in turn"],
)
def test_a_cause_is_logged_once(reasons: list[str], logged: int) -> None:
    causes = Causes()
    assert sum(causes.occurs("10.0.0.2:10911", reason, 0.0) for reason in reasons) == logged


def test_a_cause_is_logged_again_after_a_success_and_once_per_peer() -> None:
    causes = Causes()
    assert causes.occurs("a", "diverged", 0.0)
    assert causes.occurs("b", "diverged", 0.0)
    assert not causes.occurs("a", "diverged", 1.0)
    causes.end("a")
    assert causes.occurs("a", "diverged", 2.0)
    assert not causes.occurs("b", "diverged", 2.0)


def test_peers_that_never_come_again_are_forgotten() -> None:
    causes = Causes(most=3)
    for number in range(4):
        causes.occurs(f"peer {number}", "diverged", 0.0)
    assert not causes.occurs("peer 3", "diverged", 1.0)
    assert causes.occurs("peer 0", "diverged", 1.0)
