"""Fixtures of the simulated tests."""

import pytest

from sparrowmq.testing.sim_cluster import SimCluster


@pytest.fixture
def cluster() -> SimCluster:
    """A name server and a broker."""
    return SimCluster(seed=1)
