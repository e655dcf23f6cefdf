"""A name server and a broker for every test."""

from collections.abc import Iterator

import pytest

from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A running broker with the usual settings."""
    with SimCluster(seed=1).run() as sim:
        yield World(sim)
