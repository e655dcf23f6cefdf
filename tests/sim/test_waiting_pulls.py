"""Pulls that find nothing wait at the broker until something ends the wait."""

import pytest

from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster


def create_topic(sim: RunningCluster) -> None:
    sim.wait(sim.client.send("orders", b"first", queue_id=1))


def test_a_waiting_pull_ends_with_its_connection(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        pull = sim.client.pull("orders", queue_id=0, offset=0, wait_s=15)
        sim.until_idle()
        assert sim.broker.arrivals.waiting == 1
        sim.client.disconnect()
        sim.until_idle()
        assert sim.broker.arrivals.waiting == 0
        assert sim.now_s < 1
        with pytest.raises(ConnectionLost):
            sim.wait(pull)


def test_a_waiting_pull_wakes_when_its_queue_grows(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        producer = sim.new_client("producer")
        pull = sim.client.pull("orders", queue_id=0, offset=0, wait_s=15)
        sim.until_idle()
        sim.wait(producer.send("orders", b"hello", queue_id=0))
        assert sim.wait(pull).bodies == [b"hello"]
        assert sim.now_s < 1


def test_a_waiting_pull_keeps_waiting_when_another_queue_grows(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        pull = sim.client.pull("orders", queue_id=0, offset=0, wait_s=15)
        sim.until_idle()
        sim.wait(sim.new_client("producer").send("orders", b"elsewhere", queue_id=2))
        sim.advance(10)
        assert not pull.done()


def test_a_waiting_pull_is_answered_when_its_time_is_up(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        began_s = sim.now_s
        result = sim.wait(sim.client.pull("orders", queue_id=0, offset=0, wait_s=15))
        assert result.code == ResponseCode.PULL_NOT_FOUND
        assert 15 <= sim.now_s - began_s < 15.2


def test_a_waiting_pull_ignores_tags_it_did_not_ask_for(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        pull = sim.client.pull("orders", queue_id=0, offset=0, wait_s=15, tags="paid")
        sim.until_idle()
        producer = sim.new_client("producer")
        sim.wait(producer.send("orders", b"new", queue_id=0, TAGS="created"))
        sim.until_idle()
        assert not pull.done()
        sim.wait(producer.send("orders", b"money", queue_id=0, TAGS="paid"))
        assert sim.wait(pull).bodies == [b"money"]


def test_a_killed_consumer_leaves_no_waiting_pull_behind(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        consumer = sim.new_client("consumer")
        consumer.pull("orders", queue_id=0, offset=0, wait_s=15)
        sim.until_idle()
        assert sim.broker.arrivals.waiting == 1
        consumer.host.kill()
        sim.until_idle()
        assert sim.broker.arrivals.waiting == 0


def test_a_vanished_consumer_is_forgotten_when_its_pull_is_over(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        create_topic(sim)
        consumer = sim.new_client("consumer")
        consumer.pull("orders", queue_id=0, offset=0, wait_s=15)
        sim.until_idle()
        consumer.host.power_off()
        sim.advance(14)
        assert sim.broker.arrivals.waiting == 1, "the broker was not notified"
        sim.advance(2)
        assert sim.broker.arrivals.waiting == 0
