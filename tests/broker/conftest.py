"""A name server and a broker for every test."""

from collections.abc import Iterator

import pytest

from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import World, subscribes


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
