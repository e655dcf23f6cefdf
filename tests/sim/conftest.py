"""Fixtures of the simulated tests. `--sim-seeds 1000` looks longer for trouble."""

import pytest

from sparrowmq.testing.sim_cluster import SimCluster

FEW = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sim-seeds", default=str(FEW), help="how many seeds, or which ones: 40..60", metavar="N"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--sim-seeds", default=str(FEW))
        first, dots, last = str(wanted).partition("..")
        seeds = range(int(first), int(last)) if dots else range(int(first))
        metafunc.parametrize("seed", seeds)


@pytest.fixture
def cluster() -> SimCluster:
    """A name server and a broker."""
    return SimCluster(seed=1)
