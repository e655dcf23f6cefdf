"""A name server and a broker for every test."""

from collections.abc import Iterator

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import World, subscribes, world_with

LONG_SYNC_S = 60.0
"""Longer than a test; the end of the simulation lets it pass."""


@pytest.fixture
def world() -> Iterator[World]:
    """A running broker with the usual settings."""
    with SimCluster(seed=1).run() as sim:
        yield World(sim)


@pytest.fixture
def live(world: World) -> World:
    """`orders` with three messages in queue 0, and a live member of `billing`."""
    world.topic("orders", 2)
    for tag in ("paid", "created", "paid"):
        world.send("orders", tag.encode(), TAGS=tag)
    world.client("a").beat(subscribes("billing"))
    return world


@pytest.fixture
def half_synced() -> Iterator[World]:
    """With synchronous flush: `orders` with four durable messages, and six whose sync goes on."""
    with world_with(flush=Flush.SYNC) as world:
        world.topic("orders", 1)
        world.group("billing")
        world.send("orders", *(b"durable",) * 4)
        node = world.sim.brokers["broker-a"]
        node.sync_s = LONG_SYNC_S
        sender = world.sim.new_client("sender")
        for _ in range(6):
            sender.send("orders", b"unsynced")
        world.sim.until(lambda: world.broker.store.max_offset("orders", 0) == 10)
        sender.host.kill()
        yield world
        node.lose_power()
        node.sync_s = 0.0  # the orderly end of the simulation does not wait for it
