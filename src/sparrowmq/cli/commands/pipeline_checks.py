"""What a job needs of a cluster, checked before Spark starts.

Jobs are patient with servers that are away, and Spark takes a while to start: without these checks
a mistyped address or topic would be reported after a minute.
"""

from collections.abc import Iterable

from sparrowmq.cli.remote import NOT_A_NAME_SERVER, no_name_server
from sparrowmq.cli.settings.settings import nearest
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.spark.errors import ServerRefused, TopicMissing, Unreachable
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.wire.cluster import RemoteCluster


def check_topics(name_server: str, topics: Iterable[str]) -> None:
    """Raises JobError where no name server answers, none knows a broker, or a topic is missing."""
    with RemoteCluster(name_server) as cluster:
        _brokers(cluster, name_server)
        for topic in topics:
            if not _exists(cluster, topic):
                meant = nearest(topic, cluster.user_topics())
                maybe = f"did you mean {meant}? " if meant else ""
                raise JobError(
                    f"topic {topic} does not exist at {name_server}; {maybe}those that do:"
                    f" sparrowmq topic list; create it with: sparrowmq topic create {topic}"
                )


def check_dead_letters(name_server: str, group: str) -> None:
    """The same for the dead letters of a group, whose topic is made by the first of them."""
    with RemoteCluster(name_server) as cluster:
        _brokers(cluster, name_server)
        if not _exists(cluster, dlq_topic(group)):
            raise JobError(
                f"group {group} has no dead letters at {name_server}: no message of its own failed"
                " for good, or it has another name; those that have some are the topics"
                f" {dlq_topic('GROUP')} of: sparrowmq topic list --all"
            )


def _brokers(cluster: RemoteCluster, name_server: str) -> None:
    try:
        if cluster.broker_names():
            return
    except Unreachable as error:
        raise JobError(no_name_server(name_server, error.reason)) from error
    except ServerRefused as error:
        raise JobError(f"{error}; {NOT_A_NAME_SERVER}") from error
    raise JobError(
        f"no broker is registered at {name_server}; start one with: sparrowmq broker"
        f" --name-servers {name_server}"
    )


def _exists(cluster: RemoteCluster, topic: str) -> bool:
    try:
        cluster.route(topic)
    except TopicMissing:
        return False
    return True
