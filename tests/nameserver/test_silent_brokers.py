"""Brokers that are silent for two minutes are dropped, unless the server itself was frozen."""

from sparrowmq.protocol.headers.nameserver import (
    BrokerHeartbeat,
)
from tests.nameserver.test_broker_registration import compare
from tests.nameserver.world import world


def test_a_silent_broker_is_dropped_after_its_timeout_and_not_before() -> None:
    with world(broker_timeout_s=120) as w:
        broker = w.broker()
        broker.register(["orders"])
        w.sim.network.isolate(broker.host)
        w.sim.advance(119)
        assert broker.address in w.server.table.live
        w.sim.advance(7)
        assert not w.client.has_route("orders")


def test_a_broker_may_choose_its_own_timeout() -> None:
    with world(broker_timeout_s=120) as w:
        broker = w.broker()
        broker.register(["orders"], heartbeat_timeout_millis=10_000)
        w.sim.network.isolate(broker.host)
        w.sim.advance(16)
        assert w.server.table.live == {}


def test_dropping_a_silent_broker_closes_its_connection() -> None:
    with world(broker_timeout_s=10) as w:
        broker = w.broker()
        broker.register()
        w.sim.advance(16)
        assert broker.peers.known() == []


def test_a_silent_broker_does_not_take_others_on_its_connection_along() -> None:
    with world(broker_timeout_s=60) as w:
        silent, other = w.broker("silent"), w.broker("other")
        other.peers = silent.peers
        silent.register(["orders"], heartbeat_timeout_millis=10_000)
        other.register(["orders"])
        w.sim.advance(16)
        assert set(w.server.table.groups) == {"other"}
        assert len(silent.peers.known()) == 1


def test_registering_again_keeps_a_broker_alive() -> None:
    with world(broker_timeout_s=120) as w:
        broker = w.broker()
        for _ in range(10):
            broker.register(["orders"])
            w.sim.advance(30)
        assert w.client.has_route("orders")


def test_heartbeats_and_version_questions_keep_a_broker_alive() -> None:
    with world(broker_timeout_s=20) as w:
        broker = w.broker()
        broker.register(["orders"])
        for _ in range(5):
            broker.ok(
                BrokerHeartbeat(
                    cluster_name=broker.cluster,
                    broker_name=broker.name,
                    broker_addr=broker.address,
                )
            )
            w.sim.advance(15)
            compare(broker, broker.version)
            w.sim.advance(15)
        assert w.client.has_route("orders")


def test_brokers_survive_a_pause_of_the_name_server() -> None:
    with world(broker_timeout_s=120) as w:
        broker = w.broker()
        broker.register(["orders"])
        w.host.pause()
        w.sim.advance(600)
        w.host.resume()
        w.sim.advance(30)
        assert broker.address in w.server.table.live
        w.sim.advance(100)
        assert w.server.table.live == {}


def test_a_clock_that_jumps_ahead_neither_drops_brokers_nor_keeps_silent_ones() -> None:
    with world(broker_timeout_s=120) as w:
        before, after = w.broker("before"), w.broker("after")
        before.register(["orders"])
        w.sim.advance(61)
        w.clock_jump_ms = 3600 * 1000
        after.register(["orders"])
        w.sim.advance(50)
        assert set(w.server.table.groups) == {"before", "after"}
        w.sim.advance(16)
        assert set(w.server.table.groups) == {"after"}
        w.sim.advance(65)
        assert set(w.server.table.groups) == set()
