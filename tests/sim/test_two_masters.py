"""Two brokers that are both configured as the master of one name."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.replication.known_slaves import KnownSlaves
from sparrowmq.broker.replication.replication import Role
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused
from tests.sim.replicated import TOPIC, bodies, follows, has_all, role

OLD, NEW = "broker-a", "broker-a.1"


@contextmanager
def promoted(replication: ReplicationMode) -> Iterator[tuple[RunningCluster, BrokerNode]]:
    """The old master is off, its slave is the master; yields that one."""
    with SimCluster(slaves=1, replication=replication).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"before"))
        sim.until(lambda: has_all(sim))
        old, new = sim.brokers[OLD], sim.brokers[NEW]
        old.kill()
        sim.client.disconnect()
        new.stop()
        new.config = replace(new.config, broker_id=0, replication=ReplicationMode.ASYNC)
        new.start()
        sim.wait(sim.client.send(TOPIC, b"after", address=new.address))
        yield sim, new


@pytest.mark.parametrize("replication", list(ReplicationMode))
@pytest.mark.parametrize("late_s", [0.0, 5.0])
def test_a_master_that_waits_because_of_another_leaves_it_the_name(
    replication: ReplicationMode, late_s: float
) -> None:
    """It starts while no name server answers, and reaches the next one first."""
    with promoted(replication) as (sim, new):
        old, (server,) = sim.brokers[OLD], sim.name_servers.values()
        server.kill()
        old.start()
        assert role(old) is Role.WAITING
        assert "is a master now" in old.broker.replication.reason
        sim.paths.partition([new.host], [server.host])
        server.start()
        sim.advance(late_s)
        sim.paths.heal()
        sim.advance(35.0)
        assert list(server.server.table.live) == [new.address]
        sim.wait(sim.client.send(TOPIC, b"to the new one", address=new.address))
        with pytest.raises(Refused, match="there are two masters"):
            sim.wait(sim.client.send(TOPIC, b"to the old one", address=old.address))


def test_a_waiting_master_that_learns_of_another_unregisters() -> None:
    """At first it waits because its slave does not answer."""
    with promoted(ReplicationMode.SYNC) as (sim, new):
        old, (server,) = sim.brokers[OLD], sim.name_servers.values()
        server.kill()
        sim.paths.partition([new.host], [old.host, server.host])
        old.start()
        assert "stopped without saving everything" in old.broker.replication.reason
        server.start()
        sim.advance(5.0)
        assert list(server.server.table.live) == [old.address]
        sim.paths.heal()
        sim.advance(35.0)
        assert list(server.server.table.live) == [new.address]
        sim.wait(sim.client.send(TOPIC, b"to the new one", address=new.address))


def test_a_master_serves_again_when_the_other_one_has_become_its_slave() -> None:
    with promoted(ReplicationMode.SYNC) as (sim, new):
        old, (server,) = sim.brokers[OLD], sim.name_servers.values()
        server.kill()
        old.start()
        server.start()
        sim.advance(35.0)
        new.stop()
        new.config = replace(new.config, broker_id=1)
        new.start()
        sim.until(lambda: follows(sim) and role(old) is Role.MASTER)
        sim.wait(sim.client.send(TOPIC, b"to the old one", address=old.address))
        assert list(server.server.table.live) == [old.address, new.address]


def test_a_master_is_not_kept_waiting_by_one_that_waits_for_it() -> None:
    """Each remembers the other one as its slave."""
    with promoted(ReplicationMode.SYNC) as (sim, new):
        old, (server,) = sim.brokers[OLD], sim.name_servers.values()
        as_master = old.config
        old.config = replace(as_master, broker_id=1)
        old.start()
        sim.until(lambda: follows(sim, master=NEW))
        old.stop()
        server.kill()
        old.config = as_master
        old.start()
        assert role(old) is Role.WAITING
        server.start()
        new.restart()
        sim.client.disconnect()
        assert role(new) is Role.MASTER
        sim.wait(sim.client.send(TOPIC, b"to the new one", address=new.address))


# ---- after orderly stops


def test_a_master_that_stopped_in_order_does_not_return_after_another_was_master() -> None:
    """The other one is off when it starts, and is the master when it is back."""
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"before"))
        old, new = sim.brokers[OLD], sim.brokers[NEW]
        old.stop()
        new.stop()
        new.config = replace(new.config, broker_id=0, replication=ReplicationMode.ASYNC)
        new.start()
        sim.client.disconnect()
        sim.wait(sim.client.send(TOPIC, b"after", address=new.address))
        new.stop()
        old.start()
        assert role(old) is Role.WAITING
        assert "may have been the master meanwhile" in old.broker.replication.reason
        new.start()
        sim.client.disconnect()
        sim.wait(sim.client.send(TOPIC, b"to the new one", address=new.address))
        sim.advance(35.0)
        (server,) = sim.name_servers.values()
        assert list(server.server.table.live) == [new.address]
        assert role(old) is Role.WAITING


def test_a_master_fetches_messages_its_slaves_got_from_another_master() -> None:
    with SimCluster(slaves=2, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim, 1) and follows(sim, 2))
        old, new, _ = sim.brokers.values()
        old.stop()
        new.stop()
        new.config = replace(new.config, broker_id=0)
        new.start()
        sim.until(lambda: follows(sim, 2, master=NEW))
        sim.client.disconnect()
        sim.wait(sim.client.send(TOPIC, b"acknowledged", address=new.address))
        new.stop()
        old.start()
        assert role(old) is Role.MASTER, "one slave of two is enough after an orderly stop"
        assert bodies(old) == [b"acknowledged"]
        sim.until(lambda: follows(sim, 2))


@pytest.mark.parametrize("moves", [False, True], ids=["same address", "another address"])
def test_a_master_that_starts_before_its_slave_serves_when_that_is_there(moves: bool) -> None:
    """As when one machine with both of them is started again."""
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"before"))
        master, slave = sim.brokers[OLD], sim.brokers[NEW]
        master.stop()
        slave.stop()
        master.start()
        assert role(master) is Role.WAITING
        if moves:
            slave.config = replace(slave.config, port=12911)
        slave.start()
        began_s = sim.now_s
        sim.until(lambda: follows(sim))
        assert sim.now_s - began_s < 10
        sim.client.disconnect()
        sim.wait(sim.client.send(TOPIC, b"after"))


@pytest.mark.parametrize(
    "settings",
    [{"replication": ReplicationMode.ASYNC}, {"accept_loss": "broker-a"}],
    ids=["asynchronous", "loss accepted"],
)
def test_a_master_that_stopped_in_order_serves_alone(settings: dict[str, Any]) -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        master, slave = sim.brokers[OLD], sim.brokers[NEW]
        master.stop()
        slave.stop()
        master.config = replace(master.config, **settings)
        master.start()
        assert role(master) is Role.MASTER


def test_a_slave_does_not_remember_that_it_stopped_as_a_master() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        node = sim.brokers[OLD]
        node.stop()
        assert KnownSlaves.load(node.disk).complete_to is not None
        node.config = replace(node.config, broker_id=2)
        node.start()
        node.kill()
        assert KnownSlaves.load(node.disk).complete_to is None
        assert KnownSlaves.load(node.disk).slaves
