"""Health of a broker: alive unless only a restart helps, ready when clients can use it."""

import logging

import pytest

from sparrowmq.broker.broker import BrokerState
from sparrowmq.disk.errors import DiskFull
from tests.broker.scraping import PORT, monitor, monitored_world
from tests.broker.world import world_with


def test_a_broker_that_serves_is_alive_and_ready() -> None:
    with monitored_world() as world:
        assert world.get("/healthz") == (200, "alive\nok  the store is open\n")
        status, text = world.get("/readyz")
        assert status == 200
        first, *checks = text.splitlines()
        assert first == "ready"
        assert all(line.startswith("ok  ") for line in checks)
        assert "it is registered with" in text


def test_a_full_disk_makes_a_broker_unready_but_no_restart_would_help() -> None:
    with monitored_world() as world:
        world.broker.store.admission.set_over_mark(DiskFull("the log", 1))
        status, text = world.get("/readyz")
        assert status == 503
        assert text.startswith("not ready\n")
        assert "no  it takes messages, and the disk has room:" in text
        assert world.get("/healthz")[0] == 200


def test_a_store_that_has_stopped_needs_a_restart() -> None:
    with monitored_world() as world:
        world.broker.store.fail("a sync failed")
        status, text = world.get("/healthz")
        assert (status, text.splitlines()[0]) == (503, "not alive")
        assert "a sync failed" in text


def test_a_broker_that_no_name_server_knows_is_not_ready() -> None:
    with monitored_world(register_interval_s=1) as world:
        for server in world.sim.name_servers.values():
            server.kill()
        world.sim.advance(10)
        status, text = world.get("/readyz")
        assert status == 503
        assert "no  it is registered:" in text


def test_a_broker_that_drains_is_not_ready() -> None:
    with monitored_world() as world:
        world.broker.state = BrokerState.DRAINING
        status, text = world.get("/readyz")
        assert (status, "no  it serves: it is draining" in text) == (503, True)
        world.broker.state = BrokerState.SERVING


def test_an_unknown_page_lists_the_known_ones() -> None:
    with monitored_world() as world:
        status, text = world.get("/")
        assert status == 404
        assert "/healthz, /readyz" in text


def test_a_taken_port_gives_way_to_a_free_one_and_never_stops_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with monitored_world() as first:
        node = first.node
        node.host.start(monitor(node), name="a second one on the same host")
        first.sim.until(lambda: node.server.metrics_port != PORT)
        assert node.server.metrics_port > 0
        assert "port 5557 for metrics is not free" in caplog.text


def test_minus_one_switches_the_pages_off() -> None:
    with world_with(metrics_port=-1) as world:
        node = next(iter(world.sim.brokers.values()))
        node.host.start(monitor(node), name="monitoring")
        world.sim.advance(1)
        assert node.server.metrics_port == 0
