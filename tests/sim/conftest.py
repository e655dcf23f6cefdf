"""Fixtures of the simulated tests. `--sim-seeds 1000` looks longer for trouble."""

import pytest

from sparrowmq.testing.sim_cluster import SimCluster
from tests.seeds import seeds

FEW, ALL = 2, 8
"""Seeds of a run, and of a run with --slow together with it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seeds", help="how many seeds, or which ones: 40..60", metavar="N")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--sim-seeds", default=None)
        metafunc.parametrize("seed", seeds_asked_for(wanted) if wanted else seeds(ALL, few=FEW))


def seeds_asked_for(wanted: str) -> range:
    first, dots, last = wanted.partition("..")
    return range(int(first), int(last)) if dots else range(int(first))


@pytest.fixture
def cluster() -> SimCluster:
    """A name server and a broker."""
    return SimCluster(seed=1)
