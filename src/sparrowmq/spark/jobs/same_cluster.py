"""Which cluster a journal is about.

Name servers have many addresses, and clusters of different places often share one name: what a
journal remembers is the name of the cluster, and its brokers with their addresses as the name
server tells them.
"""

from typing import Any

from sparrowmq.spark.jobs.errors import JobError
from sparrowmq.spark.routes import Cluster

KEY = "brokers"


def cluster_names(cluster: Cluster, topic: str) -> list[str]:
    """The clusters that serve a topic; one, unless somebody has spread it. Raises TopicMissing."""
    return sorted({found.cluster for found in cluster.brokers(topic)})


def brokers_of(cluster: Cluster, topic: str) -> dict[str, list[str]]:
    """For a journal: the brokers that serve a topic, and where."""
    return {found.name: list(found.addresses) for found in cluster.brokers(topic)}


def check_same_cluster(
    saved: dict[str, Any], cluster: Cluster, topic: str, journal: object
) -> None:
    """Raises JobError for a journal that is about another cluster of the same name.

    Some broker has to be where it was; a cluster may grow, shrink and move bit by bit.
    """
    before: dict[str, list[str]] | None = saved.get(KEY)
    if before is None:
        return
    now = brokers_of(cluster, topic)
    if any(set(addresses) & set(before.get(name, ())) for name, addresses in now.items()):
        return
    raise JobError(
        f"{journal} is about a cluster with {_shown(before)}, and this one has {_shown(now)}. If it"
        f" is another cluster, name another folder with --state; if all its brokers moved, remove"
        f' "{KEY}" from that file'
    )


def _shown(brokers: dict[str, list[str]]) -> str:
    return ", ".join(f"{name} at {' '.join(at)}" for name, at in sorted(brokers.items()))
