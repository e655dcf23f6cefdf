"""A slave whose log is damaged gets the bytes from its master; what only it has is never lost."""

import logging

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.store.layout import QUARANTINE_DIR, log_path
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.sim.replicated import TOPIC, bodies, follows, has_all

SENT = [b"message %02d" % number for number in range(30)]


def filled_cluster(sim: RunningCluster) -> tuple[BrokerNode, BrokerNode]:
    """Master and slave with the same 30 messages, before the next checkpoint of either."""
    sim.until(lambda: follows(sim))
    for body in SENT:
        sim.wait(sim.client.send(TOPIC, body))
    sim.until(lambda: has_all(sim))
    return sim.brokers["broker-a"], sim.brokers["broker-a.1"]


def damage(node: BrokerNode, first: int, last: int) -> None:
    """Overwrite the bodies of these messages in the log of a broker that does not run."""
    path = log_path(0)
    data = bytearray(node.disk.files()[path])
    start = data.index(SENT[first])
    end = data.index(SENT[last]) + len(SENT[last])
    data[start:end] = b"\xff" * (end - start)
    node.disk.poke(path, bytes(data))


@pytest.fixture(autouse=True)
def everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize(
    ("first", "last"), [(10, 10), (10, 14), (0, 0), (28, 28)], ids=["one", "five", "first", "end"]
)
def test_a_damaged_slave_fetches_the_lost_bytes_from_its_master(
    first: int, last: int, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC, limit_s=60.0).run() as sim:
        master, slave = filled_cluster(sim)
        slave.kill()
        damage(slave, first, last)
        slave.start()
        sim.until(lambda: "put back the bytes" in caplog.text and follows(sim))
        sim.wait(sim.client.send(TOPIC, b"after"))
        assert bodies(slave) == bodies(master) == [*SENT, b"after"]
        own, masters = (node.disk.files()[log_path(0)] for node in (slave, master))
        end = slave.broker.store.max_log_offset
        assert own[:end] == masters[:end]
        assert len(slave.disk.listdir(QUARANTINE_DIR)) == 1, "only the damaged bytes are kept aside"
        slave.restart()
        sim.until(lambda: follows(sim))
        assert slave.broker.store.recovered.filled == []


def test_a_slave_gets_a_lost_log_file_from_its_master(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(slaves=1, limit_s=60.0).run() as sim:
        sim.until(lambda: follows(sim))
        sent = [bytes([number]) * 200_000 for number in range(12)]
        for body in sent:
            sim.wait(sim.client.send(TOPIC, body))
        sim.until(lambda: has_all(sim))
        slave = sim.brokers["broker-a.1"]
        slave.stop()
        slave.disk.unlink(log_path(slave.broker.store.config.log_file_size))
        slave.start()
        sim.until(lambda: "put back the bytes" in caplog.text and follows(sim))
        assert bodies(slave) == sent


def test_bytes_that_the_master_lost_too_stay_lost_and_the_slave_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(slaves=1, limit_s=60.0).run() as sim:
        master, slave = filled_cluster(sim)
        for node in (slave, master):
            node.kill()
            damage(node, 10, 10)
        sim.client.disconnect()
        master.start()
        slave.start()
        sim.until(lambda: follows(sim) and "is damaged there, too" in caplog.text)
        sim.wait(sim.client.send(TOPIC, b"after"))
        sim.until(lambda: has_all(sim))
        ends = [node.broker.store.max_offset(TOPIC, 0) for node in (slave, master)]
        assert ends == [len(SENT) + 1] * 2
        assert "put back" not in caplog.text


def test_a_damaged_slave_returns_messages_only_it_has_and_fetches_those_it_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The master has lost its end, which lies after the damage of the slave."""
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC, limit_s=60.0).run() as sim:
        master, slave = filled_cluster(sim)
        sim.until(lambda: master.broker.store.durable_log_offset > 0)
        master.sync_s = 3600.0
        more = [b"only at the slave %d" % number for number in range(20)]
        for body in more:
            sim.wait(sim.client.send(TOPIC, body))
        slave.kill()
        master.lose_power()
        master.sync_s = 0.0
        sim.client.disconnect()
        damage(slave, 5, 5)
        slave.start()
        master.start()
        sim.until(lambda: "put back the bytes" in caplog.text and follows(sim))
        assert "which lost them: copying them back" in caplog.text
        assert bodies(slave) == bodies(master) == [*SENT, *more]


def test_a_slave_follows_a_master_whose_log_was_damaged() -> None:
    with SimCluster(slaves=1, limit_s=60.0).run() as sim:
        master, slave = filled_cluster(sim)
        sim.until(lambda: master.broker.store.durable_log_offset > 0)
        master.kill()
        damage(master, 20, 20)
        sim.client.disconnect()
        master.start()
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"after"))
        sim.until(lambda: has_all(sim))
        assert bodies(slave) == [*SENT, b"after"]
