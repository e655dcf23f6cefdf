"""A master that gives no sign of life is dropped within 20 s if it has a slave that does."""

from collections.abc import Iterator

import pytest

from tests.nameserver.world import Broker, World, world


@pytest.fixture
def w() -> Iterator[World]:
    with world() as w:
        yield w


def with_slave(w: World) -> tuple[Broker, Broker]:
    """A master and its slave, registered. Like Apache's brokers they refuse what they are asked."""
    master, slave = w.broker(), w.broker(broker_id=1)
    for broker in (master, slave):
        broker.register(["orders"])
    return master, slave


def shown(w: World) -> dict[int, str]:
    (group,) = w.client.route("orders").broker_datas
    return dict(group.broker_addrs)


@pytest.mark.parametrize("after_s", [0.0, 4.0, 9.5, 12.0, 29.0])
def test_a_frozen_master_is_dropped_within_twenty_seconds(w: World, after_s: float) -> None:
    master, slave = with_slave(w)
    w.sim.advance(after_s)
    master.host.pause()
    w.sim.advance(20)
    assert shown(w) == {1: slave.address}


def test_a_master_without_power_is_dropped_and_comes_back(w: World) -> None:
    master, slave = with_slave(w)
    w.sim.network.isolate(master.host)
    w.sim.advance(20)
    assert shown(w) == {1: slave.address}
    back = w.broker(address=master.address)
    back.register(["orders"])
    assert shown(w) == {0: master.address, 1: slave.address}


def test_a_busy_master_is_never_dropped(w: World) -> None:
    """It answers once in six seconds."""
    master, slave = with_slave(w)
    for _ in range(18):
        master.host.pause()
        w.sim.advance(5.5)
        assert shown(w) == {0: master.address, 1: slave.address}
        master.host.resume()
        w.sim.advance(0.5)
    assert shown(w) == {0: master.address, 1: slave.address}


def test_a_master_that_only_answers_is_silent_after_two_minutes(w: World) -> None:
    """Its topics are as old as its last registration."""
    master, slave = with_slave(w)
    w.sim.advance(115)
    assert shown(w) == {0: master.address, 1: slave.address}
    slave.register(["orders"])
    w.sim.advance(11)
    assert shown(w) == {1: slave.address}


def test_a_frozen_master_without_a_slave_keeps_its_two_minutes(w: World) -> None:
    master = w.broker()
    master.register(["orders"])
    master.host.pause()
    w.sim.advance(115)
    assert shown(w) == {0: master.address}


def test_a_frozen_slave_keeps_its_two_minutes(w: World) -> None:
    master, slave = with_slave(w)
    slave.host.pause()
    for _ in range(3):
        w.sim.advance(30)
        master.register(["orders"])
    assert shown(w) == {0: master.address, 1: slave.address}


def test_no_master_is_dropped_when_its_slaves_are_as_silent(w: World) -> None:
    """The name server itself is cut off, or was frozen together with them."""
    master, slave = with_slave(w)
    for broker in (master, slave):
        broker.host.pause()
    w.sim.advance(60)
    assert shown(w) == {0: master.address, 1: slave.address}
    slave.host.resume()
    w.sim.advance(8)
    assert shown(w) == {1: slave.address}


def test_a_name_server_that_was_frozen_drops_no_master(w: World) -> None:
    master, slave = with_slave(w)
    w.sim.advance(11.0)
    for pause_s in (2.0, 5.0, 20.0):
        w.host.pause()
        w.sim.advance(pause_s)
        w.host.resume()
        w.sim.advance(1.5)
        assert shown(w) == {0: master.address, 1: slave.address}


def test_a_master_that_registers_while_it_is_asked_stays(w: World) -> None:
    """The first question was lost with its old connection."""
    master, slave = with_slave(w)
    master.host.pause()
    w.sim.advance(14)
    again = w.broker(address=master.address)
    again.register(["orders"])
    w.sim.advance(5)
    assert shown(w) == {0: master.address, 1: slave.address}


def test_two_frozen_masters_are_dropped_at_the_same_time(w: World) -> None:
    pairs = [(w.broker(name), w.broker(name, 1)) for name in ("broker-a", "broker-b")]
    for pair in pairs:
        for broker in pair:
            broker.register(["orders"])
    for master, _ in pairs:
        master.host.pause()
    w.sim.advance(20)
    assert set(w.server.table.live) == {slave.address for _, slave in pairs}
