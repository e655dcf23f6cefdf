"""What a slave must not do by itself, and when name servers learn of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.replication.log_description import owner_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetClusterInfo
from sparrowmq.protocol.headers.send import SendBack
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.route import ClusterInfo
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused

TOPIC = "orders"


def follows(sim: RunningCluster) -> bool:
    return 1 in sim.broker.replication.feed.links


@pytest.fixture
def sim() -> Iterator[RunningCluster]:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        yield sim


def slave_of(sim: RunningCluster) -> BrokerNode:
    return sim.brokers["broker-a.1"]


def until_copied(sim: RunningCluster) -> int:
    """Return the end of the log when the slave has everything."""
    store = slave_of(sim).broker.store
    sim.until(lambda: store.max_log_offset == sim.broker.store.max_log_offset)
    return store.max_log_offset


def registered(sim: RunningCluster) -> dict[int, str]:
    """The brokers that the name server knows, by id."""
    answer = sim.wait(sim.client.call(GetClusterInfo(), address=sim.name_server_addresses[0]))
    return dict(ClusterInfo.from_json(answer.body).broker_addr_table["broker-a"].broker_addrs)


def test_a_slave_refuses_messages_and_creates_no_topic_for_them(sim: RunningCluster) -> None:
    with pytest.raises(Refused, match="is a slave and takes no messages") as refused:
        sim.wait(sim.client.send("new-topic", b"a message", address=slave_of(sim).address))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert slave_of(sim).broker.topics.get("new-topic") is None


def test_a_slave_refuses_messages_sent_back(sim: RunningCluster) -> None:
    sent = sim.wait(sim.client.send(TOPIC, b"a message"))
    end = until_copied(sim)
    back = SendBack(offset=OffsetId.parse(sent.msg_id).log_offset, group="billing", delay_level=1)
    answer = sim.wait(sim.client.call(back, address=slave_of(sim).address))
    assert answer.code != ResponseCode.SUCCESS
    assert slave_of(sim).broker.store.max_log_offset == end


WAITING: dict[str, dict[str, Any]] = {
    "a delay level": {"DELAY": "1"},
    "a delivery time": {"TIMER_DELAY_SEC": "2"},
    "a half message": {"TRAN_MSG": "true", "PGROUP": "test"},
}


@pytest.mark.parametrize("name", WAITING)
def test_a_slave_delivers_and_checks_nothing_while_its_master_is_away(
    name: str, sim: RunningCluster
) -> None:
    sim.wait(sim.client.send(TOPIC, b"waits", **WAITING[name]))
    end = until_copied(sim)
    sim.brokers["broker-a"].kill()
    sim.advance(120.0)
    assert slave_of(sim).broker.store.max_log_offset == end


def test_a_slave_answers_pulls(sim: RunningCluster) -> None:
    sim.wait(sim.client.send(TOPIC, b"a message"))
    until_copied(sim)
    sim.until(lambda: TOPIC in slave_of(sim).broker.topics)
    pulled = sim.wait(sim.client.pull(TOPIC, address=slave_of(sim).address))
    assert pulled.bodies == [b"a message"]


def test_a_slave_registers_when_its_master_has_accepted_it(sim: RunningCluster) -> None:
    slave = slave_of(sim)
    assert registered(sim)[1] == slave.address
    right = slave.config
    slave.stop()
    slave.config = replace(right, store=replace(right.store, log_file_size=2 * 1024 * 1024))
    slave.disk = type(slave.disk)()
    slave.start()
    sim.advance(60.0)
    assert 1 not in registered(sim)
    slave.stop()
    slave.config = right
    slave.disk = type(slave.disk)()
    slave.start()
    sim.until(lambda: follows(sim))
    sim.advance(1.0)
    assert registered(sim)[1] == slave.address


def test_a_broker_that_starts_in_the_directory_of_another_logs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(brokers=2, slaves=1).run() as sim:
        one, other = sim.brokers["broker-a.1"], sim.brokers["broker-b.1"]
        masters = sim.brokers["broker-a"], sim.brokers["broker-b"]

        def follow() -> bool:
            return all(each.broker.replication.feed.links for each in masters)

        sim.until(follow)
        one.restart()
        sim.until(follow)
        sim.wait(sim.client.send("orders", b"only in broker-a"))
        end = sim.broker.store.max_log_offset
        sim.until(lambda: one.broker.store.max_log_offset == end)
        assert "was last used by" not in caplog.text
        one.stop()
        other.stop()
        one.disk, other.disk = other.disk, one.disk
        one.start()
        other.start()
        assert "was last used by broker broker-b of cluster DefaultCluster" in caplog.text
        assert "was last used by broker broker-a of cluster DefaultCluster" in caplog.text
        sim.until(lambda: "restart the master, which then copies them back" in caplog.text)
        owner = owner_of(other.disk)
        assert owner is not None, "nobody's"
        assert owner.broker_name == "broker-a", "it was refused, and took the store over"
        sim.advance(2.0)
