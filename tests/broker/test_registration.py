"""A broker registers with every name server, reports a failing one once, and tries again."""

import logging
from itertools import pairwise

import pytest

from sparrowmq.protocol.registration import RegisterBrokerBody
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

COMPLAINT = "cannot register with name server"


def live(sim: RunningCluster) -> list[list[str]]:
    """The brokers that each running name server knows."""
    return [
        [broker.broker_name for broker in node.server.table.live.values()]
        for node in sim.name_servers.values()
        if node.is_running
    ]


def test_every_name_server_hears_of_a_broker_and_of_its_end() -> None:
    with SimCluster(seed=1, name_servers=3).run() as sim:
        assert live(sim) == [["broker-a"]] * 3
        sim.brokers["broker-a"].stop()
        assert live(sim) == [[]] * 3


def test_a_name_server_that_is_down_is_logged_once_and_used_again_when_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(seed=1, name_servers=2).run() as sim, caplog.at_level(logging.INFO):
        first = next(iter(sim.name_servers.values()))
        first.kill()
        sim.advance(100)
        assert caplog.text.count(COMPLAINT) == 1
        first.start()
        sim.advance(3)
        assert live(sim) == [["broker-a"]] * 2
        assert caplog.text.count("again") == 1
        first.kill()
        sim.advance(10)
        assert caplog.text.count(COMPLAINT) == 2, "another outage"


def test_a_registration_that_is_refused_is_reported_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"max_topics_per_broker": 2}
    with SimCluster(seed=1, name_server_settings=settings).run() as sim:
        (node,) = sim.name_servers.values()
        sim.advance(100)
        assert live(sim) == [[]]
        assert caplog.text.count(COMPLAINT) == 1
        assert "at most 2 allowed" in caplog.text
        node.server.config = type(node.config)(listen_host="0.0.0.0")
        sim.advance(3)
        assert live(sim) == [["broker-a"]]


def test_a_new_topic_is_registered_at_once() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"1"))
        sim.advance(0.1)
        (node,) = sim.name_servers.values()
        assert "orders" in node.server.table.topics.of_broker("broker-a")


def test_a_new_topic_is_registered_once_if_no_name_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[int] = []
    encode = RegisterBrokerBody.encode

    def count(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
        encoded.append(len(body.topics.topic_config_table))
        return encode(body, compressed=compressed)

    monkeypatch.setattr(RegisterBrokerBody, "encode", count)
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"1"))
        (node,) = sim.name_servers.values()
        node.kill()
        sim.advance(10)
        (broker,) = sim.brokers.values()
        for number in range(10):
            encoded.clear()
            broker.server.broker.topics.get_or_create(f"orders-{number}", queues=1)
            sim.advance(0.5)
            assert len(encoded) == 1


def test_a_broker_registers_every_30_s() -> None:
    with SimCluster(seed=1).run() as sim:
        (node,) = sim.name_servers.values()
        seen: set[int] = set()
        for _ in range(120):
            sim.advance(1)
            (broker,) = node.server.table.live.values()
            seen.add(broker.last_seen_ms // 1000)
        assert len(seen) in (4, 5)
        assert {later - sooner for sooner, later in pairwise(sorted(seen))} == {30}
