"""What a job needs from a cluster and an archive, checked before Spark starts; and its condition.

Jobs are patient with servers that are away, and Spark takes a while to start: without these checks
a mistyped address or topic would be reported after a minute.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from sparrowmq.cli.commands.pipeline import spark_reason
from sparrowmq.cli.remote import no_name_server
from sparrowmq.cli.settings.settings import nearest
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.spark.errors import ClusterUnreachable, ServerRefused, TopicMissing, few_of
from sparrowmq.spark.jobs.archive import check_archived, existing_archive
from sparrowmq.spark.jobs.archive_files import local_files
from sparrowmq.spark.jobs.archive_folder import check_folder
from sparrowmq.spark.jobs.archive_query import stored_schema
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.read_plan import matches
from sparrowmq.spark.wire.cluster import RemoteCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_topics(name_server: str, topics: Iterable[str]) -> None:
    """Raises JobError if no name server answers, none knows a broker, or a topic is missing."""
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


def report_no_match(name_server: str, pattern: str) -> None:
    """Warn of a pattern that matches no topic. Not an error: topics may be created later."""
    with RemoteCluster(name_server) as cluster:
        topics = cluster.user_topics()
    if not any(matches(pattern, topic) for topic in topics):
        users = [topic for topic in topics if not topic.startswith("%")]
        there = f"the topics are {few_of(users)}" if users else "there are no topics"
        click.echo(f"warning: --pattern {pattern!r} matches no topic; {there}", err=True)


def check_dead_letters(name_server: str, group: str) -> None:
    """As `check_topics`, for a group's dead letters, the first of which creates their topic."""
    with RemoteCluster(name_server) as cluster:
        _brokers(cluster, name_server)
        if not _exists(cluster, dlq_topic(group)):
            raise JobError(
                f"group {group} has no dead letters at {name_server}: no message of its own failed"
                " for good, or it has another name; groups that have some: sparrowmq dlq list"
            )


def check_new_archive(folder: str, settings: Mapping[str, str]) -> None:
    """Raises JobError for a folder on this machine that is neither empty nor an archive."""
    files = local_files(folder, settings)
    if files is not None:
        check_folder(files)


def check_archive(folder: str, settings: Mapping[str, str], topic: str | None) -> None:
    """Raises JobError for a folder on this machine without an archive, or without this topic."""
    files = local_files(folder, settings)
    if files is not None:
        archive = existing_archive(files, folder)
        if topic is not None:
            check_archived(archive, topic, folder)


def _brokers(cluster: RemoteCluster, name_server: str) -> None:
    try:
        if cluster.broker_names():
            return
    except ClusterUnreachable as error:
        raise JobError(no_name_server(name_server, error.reason)) from error
    except ServerRefused as error:
        raise JobError(str(error)) from error
    raise JobError(
        f"no broker is registered at {name_server}; start one with: sparrowmq broker"
        f" --name-servers {name_server}"
    )


def _exists(cluster: RemoteCluster, topic: str) -> bool:
    try:
        cluster.route(topic)
    except TopicMissing as missing:
        if missing.lost:
            raise JobError(str(missing)) from missing
        return False
    return True


def check_condition(spark: "SparkSession", where: str | None) -> None:
    """Raises JobError for a --where that is not a condition on the columns of messages."""
    if where is None:
        return
    from pyspark.errors import AnalysisException

    try:
        spark.createDataFrame([], stored_schema()).where(where)
    except AnalysisException as error:
        reason = (spark_reason(error) or str(error)).rstrip(";")
        if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "")
            reason += f"; an application's property is properties['{name}']"
        raise JobError(f"--where: {reason}") from error
