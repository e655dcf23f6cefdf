"""Clusters for tests: real ones on loopback, and simulated ones in virtual time.

Names are loaded when first used: pytest imports this package, for its plugin, in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.testing.cluster_thread import Cluster, cluster
    from sparrowmq.testing.local_cluster import AsyncCluster, async_cluster
    from sparrowmq.testing.loop_watchdog import LoopStalled, LoopWatchdog
    from sparrowmq.testing.paths import Conditions
    from sparrowmq.testing.sim_cluster import SimCluster
    from sparrowmq.testing.simulation import Simulation

_HOMES = {
    "AsyncCluster": "local_cluster",
    "Cluster": "cluster_thread",
    "Conditions": "paths",
    "LoopStalled": "loop_watchdog",
    "LoopWatchdog": "loop_watchdog",
    "SimCluster": "sim_cluster",
    "Simulation": "simulation",
    "async_cluster": "local_cluster",
    "cluster": "cluster_thread",
}

__all__ = [
    "AsyncCluster",
    "Cluster",
    "Conditions",
    "LoopStalled",
    "LoopWatchdog",
    "SimCluster",
    "Simulation",
    "async_cluster",
    "cluster",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
