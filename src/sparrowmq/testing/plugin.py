"""A pytest plugin: fixtures that are running clusters.

pytest imports this in every run of every project that has SparrowMQ installed, so it imports
nothing else until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparrowmq.testing.cluster_thread import Cluster

MARK = (
    "sparrowmq(brokers=1, slaves=0, **settings): how the sparrowmq_cluster of this test is started"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse the mark of a test that has only the cluster of the session, which it cannot change.
    The mark of a class or module may be for others of its tests."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "sparrowmq_session_cluster" not in fixtures or "sparrowmq_cluster" in fixtures:
            continue
        if any(mark.name == "sparrowmq" for mark in item.own_markers):
            raise pytest.UsageError(
                f"{item.nodeid}: the mark sparrowmq does not change sparrowmq_session_cluster,"
                " which all tests share; use the fixture sparrowmq_cluster, or remove the mark"
            )


@pytest.fixture
def sparrowmq_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A name server and a broker for this test alone, on free ports, gone afterwards.

    `@pytest.mark.sparrowmq(brokers=2, default_queues=4)` changes how it is started.
    """
    from sparrowmq.testing.cluster_thread import cluster

    mark = request.node.get_closest_marker("sparrowmq")
    arguments, settings = ((), {}) if mark is None else (mark.args, mark.kwargs)
    with cluster(*arguments, **settings) as running:
        yield running


@pytest.fixture(scope="session")
def sparrowmq_session_cluster() -> Iterator[Cluster]:
    """One name server and one broker for all tests of the run; topics are best named per test."""
    from sparrowmq.testing.cluster_thread import cluster

    with cluster() as running:
        yield running
