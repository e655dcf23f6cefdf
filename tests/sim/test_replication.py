"""A master and its slaves in simulation: which messages are acknowledged, visible and durable."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker import housekeeping
from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.replication import Replication, Role
from sparrowmq.broker.replication.returning_master import SlavesHaveMessages
from sparrowmq.broker.replication.status import replication_table
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_cluster import SMALL_STORE, RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused
from tests.sim.replicated import TOPIC, bodies, follows, has_all, role


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("replication", list(ReplicationMode))
def test_a_slave_gets_every_message(flush: Flush, replication: ReplicationMode) -> None:
    with SimCluster(slaves=1, flush=flush, replication=replication).run() as sim:
        sim.until(lambda: follows(sim))
        sent = [b"message %d" % number for number in range(50)]
        for body in sent:
            sim.wait(sim.client.send(TOPIC, body))
        sim.until(lambda: has_all(sim))
        assert bodies(sim.brokers["broker-a.1"]) == sent
        assert sim.wait(sim.client.pull(TOPIC)).bodies == sent[:32]


def test_a_slave_that_was_away_resumes_at_its_log_end() -> None:
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
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        began_s = sim.now_s
        sim.wait(sim.client.send(TOPIC, b"waits", **properties))
        assert sim.now_s - began_s < 0.5
        assert has_all(sim)


def test_without_a_slave_a_synchronous_send_reports_that_and_is_visible() -> None:
    with SimCluster(replication=ReplicationMode.SYNC).run() as sim:
        with pytest.raises(Refused) as refused:
            sim.wait(sim.client.send(TOPIC, b"alone"))
        assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert sim.wait(sim.client.pull(TOPIC)).bodies == [b"alone"]


WAITING_IN_A_BROKERS_QUEUE: dict[str, dict[str, str]] = {
    "for a delay level": {"DELAY": "5"},
    "for a delivery time": {"TIMER_DELAY_SEC": "60"},
    "for the end of its transaction": {"TRAN_MSG": "true", "PGROUP": "test"},
}


@pytest.mark.parametrize("wait", WAITING_IN_A_BROKERS_QUEUE)
def test_a_message_that_waits_in_a_brokers_queue_is_acknowledged_when_a_slave_has_it(
    wait: str,
) -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"first"))
        began_s = sim.now_s
        sim.wait(sim.client.send(TOPIC, b"not yet", queue_id=0, **WAITING_IN_A_BROKERS_QUEUE[wait]))
        assert sim.now_s - began_s < 0.1
        assert has_all(sim)


def test_a_master_waits_for_a_frozen_slave_and_then_reports_it() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC, slave_timeout_s=2.0).run() as sim:
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


def test_a_master_that_stops_answers_the_sends_that_wait_for_its_slave() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"first"))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.host.pause()
        waiting = sim.client.send(TOPIC, b"waits")
        sim.advance(0.1)
        master.begin_stop()
        sim.advance(1.0)
        with pytest.raises(Refused, match="is stopping"):
            sim.wait(sim.client.send(TOPIC, b"comes too late"))
        slave.host.resume()
        sim.wait(waiting)
        master.wait_for_end()
        assert bodies(slave) == [b"first", b"waits"]


def test_a_stopping_master_does_not_wait_for_a_frozen_slave() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC, slave_timeout_s=60.0).run() as sim:
        sim.until(lambda: follows(sim))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.host.pause()
        waiting = sim.client.send(TOPIC, b"waits")
        sim.advance(0.1)
        began_s = sim.now_s
        master.begin_stop()
        with pytest.raises(Refused) as refused:
            sim.wait(waiting)
        assert refused.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        master.wait_for_end()
        assert sim.now_s - began_s < 10, "supervisors kill a server that stops for longer"


def test_a_broker_that_stops_answers_the_sends_that_wait_for_its_disk() -> None:
    with SimCluster(flush=Flush.SYNC).run() as sim:
        sim.wait(sim.client.send(TOPIC, b"first"))
        sim.brokers["broker-a"].sync_s = 1.0
        waiting = sim.client.send(TOPIC, b"waits")
        sim.advance(0.1)
        sim.brokers["broker-a"].begin_stop()
        sim.wait(waiting)


def test_too_few_copies_refuse_a_message_before_it_is_stored() -> None:
    with SimCluster(
        slaves=1, replication=ReplicationMode.SYNC, min_in_sync_replicas=2
    ).run() as sim:
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
    with SimCluster(
        slaves=1, replication=ReplicationMode.SYNC, flush_interval_s=600.0
    ).run() as sim:
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


def test_a_master_that_lost_several_log_files_gets_them_back() -> None:
    with SimCluster(
        slaves=1, replication=ReplicationMode.SYNC, flush_interval_s=600.0
    ).run() as sim:
        sim.until(lambda: follows(sim))
        began_s = sim.now_s
        for _ in range(12):
            sim.wait(sim.client.send(TOPIC, bytes(200_000)))
        assert sim.now_s - began_s < 0.5, "the end of a file was waited for"
        master = sim.brokers["broker-a"]
        end = master.broker.store.max_log_offset
        assert end > 2 * master.broker.store.config.log_file_size
        master.lose_power()
        sim.client.disconnect()
        master.start()
        assert master.broker.store.max_log_offset == end


@contextmanager
def master_without_its_end(
    replication: ReplicationMode = ReplicationMode.SYNC,
) -> Iterator[tuple[RunningCluster, BrokerNode, BrokerNode]]:
    """A master that has started after a power cut while its slave, which has 20 messages more,
    does not run; and that slave."""
    with SimCluster(slaves=1, replication=replication, flush_interval_s=600.0).run() as sim:
        sim.until(lambda: follows(sim))
        for number in range(20):
            sim.wait(sim.client.send(TOPIC, b"message %d" % number))
        sim.until(lambda: has_all(sim))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.kill()
        master.lose_power()
        sim.client.disconnect()
        master.start()
        yield sim, master, slave


def test_a_waiting_master_learns_the_new_address_of_its_slave() -> None:
    with master_without_its_end() as (sim, master, slave):
        assert role(master) is Role.WAITING
        slave.config = replace(slave.config, port=12911)
        slave.start()
        sim.until(lambda: follows(sim))
        assert len(bodies(master)) == 20


def test_a_master_that_did_not_wait_learns_the_new_address_of_a_slave_that_has_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with master_without_its_end(ReplicationMode.ASYNC) as (sim, master, slave):
        assert role(master) is Role.MASTER
        assert bodies(master) == []
        slave.config = replace(slave.config, port=12911)
        slave.start()
        sim.until(lambda: "restart the master, which then copies them back" in caplog.text)
        master.restart()
        assert len(bodies(master)) == 20
        sim.until(lambda: follows(sim))


def test_a_master_that_lost_its_directory_does_not_serve_an_empty_log() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"a message"))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        master.kill()
        master.disk = RecordingDisk()
        with pytest.raises(ExceptionGroup) as caught:
            master.start()
        assert caught.group_contains(SlavesHaveMessages, match="broker promote broker-a")
        assert bodies(slave) == [b"a message"]
        master.config = replace(master.config, accept_loss="broker-a")
        master.start()
        assert bodies(master) == []


def test_a_slave_unknown_to_its_new_master_returns_messages_only_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A slave was promoted without messages of its master, which comes back as a slave."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"on both"))
        sim.until(lambda: has_all(sim))
        old, new = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        new.stop()
        sim.wait(sim.client.send(TOPIC, b"on one"))
        old.stop()
        new.config = replace(new.config, broker_id=0)
        new.start()
        old.config = replace(old.config, broker_id=1)
        old.start()
        sim.until(lambda: "restart the master, which then copies them back" in caplog.text)
        new.restart()
        assert bodies(new) == [b"on both", b"on one"]


def test_a_new_slave_at_the_address_of_another_is_not_mistaken_for_it() -> None:
    with master_without_its_end() as (sim, master, slave):
        slave.config = replace(slave.config, broker_id=2)
        slave.disk = RecordingDisk()
        slave.start()
        sim.advance(10.0)
        assert role(master) is Role.WAITING


def test_a_restarted_master_accepts_no_messages_until_its_slave_is_back() -> None:
    with master_without_its_end() as (sim, master, slave):
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


def expire_while_the_slave_is_away(sim: RunningCluster, *, restarts: bool) -> None:
    """Everything is older than it has to be kept when the slave comes back."""
    master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
    sim.until(lambda: follows(sim))
    for _ in range(6):
        sim.wait(sim.client.send(TOPIC, bytes(200_000)))
    sim.until(lambda: has_all(sim))
    slave.kill()
    sim.until(lambda: not follows(sim))
    for _ in range(12):
        sim.wait(sim.client.send(TOPIC, bytes(200_000)))
    if restarts:
        master.restart()
        sim.client.disconnect()
    sim.advance(10.0)
    sim.wait(sim.client.send(TOPIC, b"young"))
    sim.wait(master.host.start(housekeeping.clean(master.broker, any_hour=True)))
    slave.start()
    sim.until(lambda: follows(sim) and has_all(sim))


SHORT_LIVED: dict[str, Any] = {"store": replace(SMALL_STORE, retention_ms=5_000)}


@pytest.mark.parametrize("restarts", [False, True], ids=["it runs on", "it starts again"])
def test_a_master_keeps_expired_messages_that_a_slave_needs(restarts: bool) -> None:
    with SimCluster(slaves=1, **SHORT_LIVED).run() as sim:
        expire_while_the_slave_is_away(sim, restarts=restarts)
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        assert not slave.disk.exists("aside-1")
        assert len(bodies(slave)) == 19
        sim.advance(1.0)
        sim.wait(master.host.start(housekeeping.clean(master.broker, any_hour=True)))
        assert master.broker.store.min_log_offset > 2 * SMALL_STORE.log_file_size


def test_planted_a_master_that_keeps_nothing_for_its_slaves_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replication, "needed_from", None)
    with SimCluster(slaves=1, **SHORT_LIVED).run() as sim:
        expire_while_the_slave_is_away(sim, restarts=False)
        assert sim.brokers["broker-a.1"].disk.exists("aside-1")


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_a_slave_with_a_wrong_clock_has_the_times_of_its_master(hours: int) -> None:
    with SimCluster(
        slaves=1, replication=ReplicationMode.SYNC, flush_interval_s=600.0
    ).run() as sim:
        sim.until(lambda: follows(sim))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.clock = lambda: sim.clock() + hours * 3_600_000
        slave.kill()
        sim.until(lambda: not follows(sim))
        slave.start()
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"a message"))
        stores = [node.broker.store for node in (master, slave)]
        assert len({store.store_time(store.last_record_offset) for store in stores}) == 1
        assert len({store.read_log(0, store.max_log_offset) for store in stores}) == 1
        table = replication_table(slave.broker.replication, slave.clock())
        assert table["behindMasterSeconds"] == 0
        master.lose_power()
        sim.client.disconnect()
        master.start()
        assert bodies(master) == [b"a message"]


def test_a_slave_with_a_wrong_clock_can_become_the_master_with_its_own_history() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"a message"))
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        master.kill()
        slave.kill()
        slave.clock = lambda: sim.clock() - 3_600_000
        slave.config = replace(slave.config, broker_id=0)
        slave.start()
        numbers = [start.number for start in slave.broker.store.epochs.lineage]
        assert numbers == sorted(set(numbers))
        master.config = replace(master.config, broker_id=1)
        master.start()
        sim.until(lambda: follows(sim, master="broker-a.1"))
