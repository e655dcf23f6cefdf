"""A client that comes back on another connection is one member, not two."""

import logging

import pytest

from sparrowmq.broker.handlers.connections import CheckedConsumerConnection
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from tests.broker.world import World, subscribes

OWN = "10.0.0.9@4711#1700000000000"


def connections(world: World) -> CheckedConsumerConnection:
    return world.read(GetConsumerConnections(consumer_group="billing"), CheckedConsumerConnection)


def test_a_reconnect_replaces_the_old_connection_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        world.client("half open").beat(subscribes("billing"), client_id=OWN)
        world.client("again").beat(subscribes("billing"), client_id=OWN)
    told = connections(world)
    assert len(told.connection_set) == 1
    assert told.doubled_client_ids == []
    assert "used twice" not in caplog.text
    live = world.broker.consumers.group("billing")
    assert live is not None
    [connection] = live.members
    assert connection.peer_host == world.sim.host("again").ip


def test_the_end_of_the_old_connection_does_not_affect_the_new_one(world: World) -> None:
    old = world.client("half open")
    old.beat(subscribes("billing"), client_id=OWN)
    world.client("again").beat(subscribes("billing"), client_id=OWN)
    old.disconnect()
    live = world.broker.consumers.group("billing")
    assert live is not None and live.client_ids == [OWN]


def test_a_misconfigured_group_is_reported_with_the_remedy(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        world.client("a").beat(subscribes("billing"), client_id="10.0.0.9@DEFAULT")
        world.client("b").beat(subscribes("billing", "refunds"), client_id="10.0.0.9@DEFAULT")
    assert "10.0.0.9@DEFAULT): give each process an instance name of its own" in caplog.text
    assert "give all members of a group the same subscriptions" in caplog.text
