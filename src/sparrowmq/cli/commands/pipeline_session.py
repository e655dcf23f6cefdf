"""A Spark session for commands: made quietly, ended with the command, and its progress shown."""

import functools
import getpass
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparrowmq.cli.remote import (
    DEFAULT,
    HELP,
    NOT_A_NAME_SERVER,
    VARIABLE,
    checked_addresses,
    no_name_server,
)
from sparrowmq.cli.settings.settings import nearest
from sparrowmq.cli.values import parse_value
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.spark.errors import RocketMQError, ServerRefused, TopicMissing, Unreachable
from sparrowmq.spark.jobs.job import JobError, OnStep, Step
from sparrowmq.spark.session import find_java, spark_session
from sparrowmq.spark.wire.cluster import RemoteCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What the commands of `sparrowmq pipeline` share: options, times, where state is kept.


P = ParamSpec("P")
T = TypeVar("T")


class Moment(click.ParamType[datetime]):
    """A time: `2026-11-15`, `2026-11-15T13:30`, with a zone or in UTC."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """The text as a time with its zone."""
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            text = f"{value!r} is no time; write 2026-11-15 or 2026-11-15T13:30, in UTC"
            self.fail(text, param, ctx)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


class Duration(click.ParamType[float]):
    """Seconds: `10s`, `500ms`, `1h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The text as seconds."""
        if isinstance(value, float | int):
            return float(value)
        try:
            return float(parse_value(value, float, "interval_s"))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


name_server_option = click.option(
    "--name-server",
    "--name-servers",
    "-n",
    "name_server",
    envvar=VARIABLE,
    default=DEFAULT,
    show_default=True,
    callback=checked_addresses,
    help=HELP,
)
_master = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://…",
)
_settings = click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark; may be repeated.",
)
state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where jobs remember what they did. [default: ~/.local/state/sparrowmq/pipelines]",
)


def spark_options(command: Callable[P, T]) -> Callable[..., T]:
    """--master and --conf; the command gets `master` and `settings`, the latter as a dict."""

    @_master
    @_settings
    @functools.wraps(command)
    def wrapped(*args: Any, settings: tuple[str, ...], **values: Any) -> T:
        return command(*args, settings=_pairs(settings), **values)  # type: ignore[arg-type]

    return wrapped


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--conf {text!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def state_folder(given: Path | None) -> Path:
    """Where journals are kept."""
    if given is not None:
        return given
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "sparrowmq" / "pipelines"


def operator_name() -> str:
    """Who runs this command, for other operators: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run under a number only
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


# What a job needs of a cluster, looked at before Spark starts.
#
# Jobs are patient with servers that are away, and Spark takes a while to start: an address or a
# topic that is mistyped would be told after a minute.


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


_STDERR = 2


@contextmanager
def pipeline_session(
    name: str,
    master: str,
    settings: Mapping[str, str],
    environ: MutableMapping[str, str] = os.environ,
) -> "Iterator[SparkSession]":
    """A session for the block; one that was there before is used, and stays."""
    before = _running_session()
    session = before or _quiet_session(name, master, settings, environ)
    try:
        yield session
    finally:
        if before is None:
            session.stop()


def _running_session() -> "SparkSession | None":
    if sys.modules.get("pyspark.sql") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _quiet_session(
    name: str, master: str, settings: Mapping[str, str], environ: MutableMapping[str, str]
) -> "SparkSession":
    """Java's own warnings go to a file, which is named when the start fails."""
    java = find_java(environ)
    click.echo(f"Spark {master} on Java {java.version} ({java.origin})", err=True)
    number, log = tempfile.mkstemp(prefix="sparrowmq-spark-", suffix=".log")
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(number, _STDERR)
    try:
        session = spark_session(name, master=master, settings=settings, environ=environ)
    except Exception as error:
        text = Path(log).read_text(errors="replace")[-2000:]
        raise RocketMQError(f"Spark does not start: {error}\n{text}") from error
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(number)
    Path(log).unlink()  # Java goes on writing to it, and nobody has to clean up
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def shown_progress(what: str) -> Iterator[OnStep]:
    """Shows a job's steps: a bar on a terminal, a line for each commit elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: _print_step(what, step)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=None)

        def on_step(step: Step) -> None:
            text = f"{what}: {step.name}"
            progress.update(task, completed=step.done, total=step.of, description=text)

        yield on_step


_QUIET_STEPS = frozenset({"under way", "sent", "written", "moved", "moving", "progress"})


def _print_step(what: str, step: Step) -> None:
    if step.name in _QUIET_STEPS:
        return
    of = f" of {step.of:,}" if step.of is not None else ""
    rows = f" {step.rows:,} rows" if step.rows else ""
    click.echo(f"{what}: {step.name}{rows}, {step.done:,}{of} done", err=True)
