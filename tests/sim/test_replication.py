"""A master and its slaves in simulation: what is acknowledged, what is seen, what survives."""

from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.config import Flush, Replication
from sparrowmq.broker.replication.replication import Role
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.wire import Refused
from tests.sim.replicated import TOPIC, bodies, follows, has_all, role


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("replication", list(Replication))
def test_a_slave_gets_every_message(flush: Flush, replication: Replication) -> None:
    with SimCluster(slaves=1, flush=flush, replication=replication).run() as sim:
        sim.until(lambda: follows(sim))
        sent = [b"message %d" % number for number in range(50)]
        for body in sent:
            sim.wait(sim.client.send(TOPIC, body))
        sim.until(lambda: has_all(sim))
        assert bodies(sim.brokers["broker-a.1"]) == sent
        assert sim.wait(sim.client.pull(TOPIC)).bodies == sent[:32]


def test_a_slave_that_was_away_goes_on_where_it_was() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"before"))
        sim.until(lambda: has_all(sim))
        sim.brokers["broker-a.1"].kill()
        sim.wait(sim.client.send(TOPIC, b"while it was away"))
        sim.brokers["broker-a.1"].start()
        sim.until(lambda: has_all(sim))
        assert bodies(sim.brokers["broker-a.1"]) == [b"before", b"while it was away"]


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "5"},
        {"TIMER_DELAY_SEC": "60"},
        {"TRAN_MSG": "true", "PGROUP": "producers"},
    ],
    ids=["level", "timer", "half message"],
)
def test_a_message_that_waits_in_the_broker_is_copied_at_once(properties: dict[str, Any]) -> None:
    """No pull waits for it, so nothing else would make the master send it to its slave."""
    with SimCluster(slaves=1, replication=Replication.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        began_s = sim.now_s
        sim.wait(sim.client.send(TOPIC, b"waits", **properties))
        assert sim.now_s - began_s < 0.5
        assert has_all(sim)


def test_without_a_slave_a_synchronous_send_says_so_and_is_seen() -> None:
    with SimCluster(replication=Replication.SYNC).run() as sim:
        with pytest.raises(Refused) as refused:
            sim.wait(sim.client.send(TOPIC, b"alone"))
        assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert sim.wait(sim.client.pull(TOPIC)).bodies == [b"alone"]


def test_a_slave_that_stands_still_is_waited_for_and_then_reported() -> None:
    with SimCluster(slaves=1, replication=Replication.SYNC, slave_timeout_s=2.0).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"first"))
        sim.brokers["broker-a.1"].host.pause()
        began_s = sim.now_s
        sending = sim.client.send(TOPIC, b"late")
        sim.advance(1.0)
        assert sim.wait(sim.client.pull(TOPIC)).bodies == [b"first"], "seen before it was safe"
        with pytest.raises(Refused) as refused:
            sim.wait(sending)
        assert refused.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert sim.now_s - began_s == pytest.approx(2.0, abs=0.1)
        assert sim.wait(sim.client.pull(TOPIC)).bodies == [b"first", b"late"]


def test_too_few_copies_refuse_a_message_before_it_is_stored() -> None:
    with SimCluster(slaves=1, replication=Replication.SYNC, min_in_sync_replicas=2).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"two copies"))
        sim.brokers["broker-a.1"].kill()
        sim.until(lambda: not sim.broker.replication.feed.links)
        end = sim.broker.store.max_log_offset
        with pytest.raises(Refused, match="in-sync replicas not enough"):
            sim.wait(sim.client.send(TOPIC, b"one copy"))
        assert sim.broker.store.max_log_offset == end
        sim.brokers["broker-a.1"].start()
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"two copies again"))


def test_a_master_that_lost_its_end_gets_it_back_from_its_slave() -> None:
    with SimCluster(slaves=1, replication=Replication.SYNC, flush_interval_s=600.0).run() as sim:
        sim.until(lambda: follows(sim))
        sent = [b"message %d" % number for number in range(20)]
        for body in sent:
            sim.wait(sim.client.send(TOPIC, body))
        master = sim.brokers["broker-a"]
        master.lose_power()
        sim.client.disconnect()
        master.start()
        assert bodies(master) == sent
        assert role(master) is Role.MASTER
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"after"))
        assert bodies(sim.brokers["broker-a.1"]) == [*sent, b"after"]


def test_a_waiting_master_learns_the_new_address_of_its_slave() -> None:
    with SimCluster(slaves=1, replication=Replication.SYNC, flush_interval_s=600.0).run() as sim:
        sim.until(lambda: follows(sim))
        for number in range(20):
            sim.wait(sim.client.send(TOPIC, b"message %d" % number))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.kill()
        master.lose_power()
        sim.client.disconnect()
        master.start()
        assert role(master) is Role.WAITING
        slave.config = replace(slave.config, port=12911)
        slave.start()
        sim.until(lambda: follows(sim))
        assert len(bodies(master)) == 20


def test_a_master_whose_slave_is_gone_too_takes_no_messages_until_it_is_back() -> None:
    with SimCluster(slaves=1, replication=Replication.SYNC, flush_interval_s=600.0).run() as sim:
        sim.until(lambda: follows(sim))
        for number in range(20):
            sim.wait(sim.client.send(TOPIC, b"message %d" % number))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.kill()
        master.lose_power()
        sim.client.disconnect()
        master.start()
        assert role(master) is Role.WAITING
        with pytest.raises(Refused, match="--accept-loss broker-a"):
            sim.wait(sim.client.send(TOPIC, b"too early"))
        slave.start()
        sim.until(lambda: follows(sim))
        assert role(master) is Role.MASTER
        assert len(bodies(master)) == 20
        sim.wait(sim.client.send(TOPIC, b"after"))


def test_a_master_takes_no_messages_while_its_slave_follows_another() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        master.stop()
        slave.stop()
        slave.config = replace(slave.config, broker_id=0)
        slave.start()
        master.config = replace(master.config, name_servers=())
        master.start()
        assert role(master) is Role.WAITING
        assert "is a master now" in master.broker.replication.reason
        assert role(slave) is Role.MASTER


def test_a_slave_that_was_away_too_long_starts_again_with_an_empty_log() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"expires"))
        sim.until(lambda: has_all(sim))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        master.disk.capacity_bytes = 64 * 1024 * 1024
        slave.kill()
        for _ in range(12):
            sim.wait(sim.client.send(TOPIC, bytes(200_000)))
        store = master.broker.store
        sim.advance(60.0)
        assert store.min_log_offset == 0, "what the slave needs is deleted while there is room"
        used = master.disk.usage().total_bytes - master.disk.usage().free_bytes
        master.disk.capacity_bytes = int(used / 0.87)
        sim.advance(60.0)
        assert store.min_log_offset > 0
        slave.start()
        sim.until(lambda: follows(sim) and has_all(sim))
        assert slave.disk.exists("aside-1/commitlog"), "the old log is gone"
        assert slave.broker.store.min_log_offset == store.min_log_offset
