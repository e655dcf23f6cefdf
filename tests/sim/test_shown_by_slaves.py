"""Which messages a slave shows where an acknowledgement takes more copies than the master's and its
own. Where it takes two, a slave that has a message confirms it, and shows it at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.sim.replicated import TOPIC, bodies, follows, has_all, role
from tests.sim.slaves import create_topic, pulled

MASTER, ONE, OTHER = "broker-a", "broker-a.1", "broker-a.2"
SECOND_S = 1.0
"""A slave asks its master more often for what it may show."""


@contextmanager
def with_two_slaves(copies: int = 3, **settings: Any) -> Iterator[RunningCluster]:
    """Both follow, and `both` has been sent."""
    settings = {"slave_timeout_s": 60.0, **settings}
    with SimCluster(
        slaves=2, replication=ReplicationMode.SYNC, in_sync_replicas=copies, **settings
    ).run() as sim:
        sim.until(lambda: follows(sim, 1) and follows(sim, 2))
        create_topic(sim)
        sim.wait(sim.client.send(TOPIC, b"on all"))
        sim.until(lambda: has_all(sim, ONE) and has_all(sim, OTHER))
        sim.advance(SECOND_S)
        yield sim


def shown(sim: RunningCluster, node: BrokerNode, offset: int = 0) -> list[bytes]:
    """What a consumer gets from a broker."""
    return sim.wait(sim.client.pull(TOPIC, address=node.address, offset=offset)).bodies


def send_to_one(sim: RunningCluster, *sent: bytes) -> None:
    """Send what one slave has and the other one does not."""
    sim.paths.partition([sim.brokers[MASTER].host], [sim.brokers[OTHER].host])
    for body in sent or (b"on one",):
        sim.wait(sim.client.send(TOPIC, body, WAIT="false"))
    sim.until(lambda: has_all(sim, ONE))
    sim.advance(SECOND_S)
    assert bodies(sim.brokers[ONE])[1:] == [*(sent or (b"on one",))]
    assert shown(sim, sim.brokers[MASTER]) == [b"on all"]


@pytest.mark.parametrize("flush", list(Flush))
def test_a_slave_hides_what_too_few_copies_have(flush: Flush) -> None:
    with with_two_slaves(flush=flush) as sim:
        send_to_one(sim)
        slave = sim.brokers[ONE]
        assert shown(sim, slave) == [b"on all"]
        # A position that counts a hidden message stays as it is.
        for offset in (1, 2):
            code, answer = pulled(sim, slave, offset)
            assert (code, answer.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, offset)
        began_s = sim.now_s
        waiting = sim.client.pull(TOPIC, address=slave.address, offset=1, wait_s=15)
        sim.paths.heal()
        assert sim.wait(waiting).bodies == [b"on one"]
        assert sim.now_s - began_s < SECOND_S
        assert shown(sim, slave) == [b"on all", b"on one"]


def test_no_member_skips_the_replacement_of_a_message_that_it_read_at_a_slave() -> None:
    """A power cut takes messages from the master, which asks the slave that never had them."""
    with with_two_slaves(flush_interval_s=3000.0, seed=1) as sim:
        master, one = sim.brokers[MASTER], sim.brokers[ONE]
        master.sync_s = 60.0
        send_to_one(sim, *(b"on one %d" % number for number in range(16)))
        position = len(shown(sim, one))
        one.kill()
        master.lose_power()
        sim.paths.heal()
        sim.client.disconnect()
        master.start()
        assert role(master) is Role.MASTER
        assert b"on one 15" not in bodies(master)
        fresh = [b"new %d" % number for number in range(20)]
        for body in fresh:
            sim.wait(sim.client.send(TOPIC, body, WAIT="false"))
        assert set(fresh) <= set(bodies(master)[position:])


@pytest.mark.parametrize("flush", list(Flush))
def test_a_slave_that_restarts_without_its_master_shows_no_more(flush: Flush) -> None:
    with with_two_slaves(flush=flush) as sim:
        send_to_one(sim)
        sim.brokers[MASTER].kill()
        sim.client.disconnect()
        sim.advance(6.0)
        assert shown(sim, sim.brokers[ONE]) == [b"on all"]
        sim.brokers[ONE].restart()
        sim.client.disconnect()
        assert shown(sim, sim.brokers[ONE]) == [b"on all"]


def test_a_slave_shows_what_its_master_gave_up() -> None:
    with with_two_slaves(slave_timeout_s=2.0) as sim:
        send_to_one(sim)
        sim.advance(4.0)
        assert shown(sim, sim.brokers[MASTER]) == [b"on all", b"on one"]
        assert shown(sim, sim.brokers[ONE]) == [b"on all", b"on one"]


@pytest.mark.parametrize("flush", list(Flush))
def test_with_two_copies_a_slave_shows_everything_at_once_and_without_its_master(
    flush: Flush,
) -> None:
    with with_two_slaves(copies=2, flush=flush) as sim:
        slave = sim.brokers[ONE]
        waiting = sim.client.pull(TOPIC, address=slave.address, offset=1, wait_s=15)
        sim.advance(0.1)
        began_s = sim.now_s
        sim.wait(sim.client.send(TOPIC, b"on two", WAIT="false"))
        assert sim.wait(waiting).bodies == [b"on two"]
        assert sim.now_s - began_s < 0.1
        sim.brokers[MASTER].kill()
        sim.client.disconnect()
        assert shown(sim, slave) == [b"on all", b"on two"]
        slave.restart()
        sim.client.disconnect()
        assert shown(sim, slave) == [b"on all", b"on two"]


def test_an_old_master_that_is_started_as_a_slave_shows_no_more_than_before() -> None:
    """It may have messages that its successor lacks, and does not know yet."""
    with with_two_slaves(copies=2) as sim:
        master = sim.brokers[MASTER]
        for name in (ONE, OTHER):
            sim.brokers[name].host.pause()
        sim.wait(sim.client.send(TOPIC, b"on the master", WAIT="false"))
        master.kill()
        for name in (ONE, OTHER):
            sim.brokers[name].kill()
        master.config = replace(master.config, broker_id=3)
        master.start()
        sim.client.disconnect()
        assert b"on the master" in bodies(master)
        assert shown(sim, master) == [b"on all"]
