"""Tables of a broker that cannot be read: the copy is used, and the damage is reported."""

import logging

import pytest

from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.world import World

TABLE = "config/topics.json"


def damage(node: BrokerNode, path: str) -> None:
    file = node.disk.open(path)
    file.write(0, b"?")
    file.close()


def test_a_damaged_table_is_a_warning_and_its_copy_is_used(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("orders")
    world.topic("payments")
    node = world.sim.brokers["broker-a"]
    node.stop()
    damage(node, TABLE)
    with caplog.at_level(logging.WARNING):
        node.start()
    assert "orders" in world.broker.topics
    told = [record.getMessage() for record in caplog.records if TABLE in record.getMessage()]
    assert any(f"{TABLE}.bak is used" in text for text in told)


def test_a_store_without_damage_logs_no_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send("orders", b"1")
    node = world.sim.brokers["broker-a"]
    node.kill()
    with caplog.at_level(logging.WARNING):
        node.start()
    assert not [record for record in caplog.records if "store:" in record.getMessage()]


def test_a_drain_that_cannot_be_read_keeps_the_broker_from_starting(world: World) -> None:
    """If it started anyway, it might accept messages that belong elsewhere."""
    world.sim.run(_begin(world), on=world.sim.host("broker-a"))
    node = world.sim.brokers["broker-a"]
    node.stop()
    damage(node, "config/drain.json")
    with pytest.raises(ExceptionGroup) as refused:
        node.start()
    (error,) = refused.value.exceptions
    assert "sparrowmq store rebuild DIR --table drain.json" in str(error)


async def _begin(world: World) -> None:
    world.broker.drain.begin(0.0)
