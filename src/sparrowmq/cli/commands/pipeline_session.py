"""The Spark session of a command: starts quietly and ends with it; prints plans and progress."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sparrowmq.cli.commands.pipeline import java_failed, spark_reason
from sparrowmq.cli.commands.pipeline_options import is_verbose
from sparrowmq.cli.output import Table as Rows
from sparrowmq.cli.output import Value
from sparrowmq.cli.output import table as rows_of
from sparrowmq.cli.stop_signal import signals_kept
from sparrowmq.client.errors import counted
from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.jobs.job import JobStep, OnStep
from sparrowmq.spark.session import find_java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.spark.jobs.copy import Copied

_STDERR = 2
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def pipeline_session(
    name: str,
    master: str,
    settings: Mapping[str, str],
    environ: MutableMapping[str, str] = os.environ,
) -> "Iterator[SparkSession]":
    """A session for the block; an existing one is used, and stays."""
    before = _running_session()
    with quiet_stop():
        session = before or _quiet_session(name, master, settings, environ)
        with nullcontext() if is_verbose() else _without_traces():
            try:
                yield session
            finally:
                if before is None:
                    session.stop()


@contextmanager
def quiet_stop() -> Iterator[None]:
    """Keep py4j's stack traces of a signal out of the log: the command says that it was stopped.

    PySpark cancels its jobs in the handler of SIGINT. The main thread is then waiting for Java's
    answer, and its connection cannot take a second call.
    """

    def is_news(record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("KeyboardInterrupt while sending command"):
            return False
        error = record.exc_info[1] if record.exc_info else None
        return not _comes_from_reentrant_call(error)

    root = logging.getLogger()  # where py4j logs it
    root.addFilter(is_news)
    try:
        yield
    finally:
        root.removeFilter(is_news)


def _comes_from_reentrant_call(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, RuntimeError) and str(error).startswith("reentrant call inside"):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _without_traces() -> Iterator[None]:
    """Hide PySpark's log of query errors: it logs each, with Java's trace, before raising it."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def _running_session() -> "SparkSession | None":
    if sys.modules.get("pyspark.sql") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _quiet_session(
    name: str, master: str, settings: Mapping[str, str], environ: MutableMapping[str, str]
) -> "SparkSession":
    """A session whose Java warnings go to a file, which is named if the start fails."""
    java = find_java(environ)
    click.echo(f"Spark {master} on Java {java.version} ({java.origin})", err=True)
    number, log = tempfile.mkstemp(prefix="sparrowmq-spark-", suffix=".log")
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(number, _STDERR)
    try:
        with _java_starts_whole():
            session = spark_session(name, master=master, settings=settings, environ=environ)
    except Exception as error:
        text = Path(log).read_text(errors="replace")[-2000:]
        raise RocketMQError(_start_failed(error, text)) from error
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(number)
        Path(log).unlink()  # Java keeps writing to it, and it is gone when Java ends
    session.sparkContext.setLogLevel("OFF")
    return session


def _start_failed(error: Exception, log: str) -> str:
    """Why Spark does not start. Its log is part of that only if Java did not get as far as saying
    so: otherwise it repeats the message in a stack trace."""
    reason = spark_reason(error)
    if reason is None:
        return f"Spark does not start: {error}\n{log}".rstrip()
    if java_failed(error) and not is_verbose():
        return f"Spark does not start: {reason} (--verbose shows Spark's log)"
    return f"Spark does not start: {reason}\n{log}".rstrip()


@contextmanager
def _java_starts_whole() -> Iterator[None]:
    """Let no signal end the start of Java half-way.

    PySpark waits until Java has written its port to a file in a temporary folder. If a signal ends
    that wait, PySpark removes the folder, Java fails to write the file, and one of its threads
    keeps it running for good: it never starts to watch the pipe by which it notices that its Python
    has ended. Once PySpark has the port, Java ends with its Python, whatever happens.
    """
    try:
        context: Any = import_module("pyspark.core.context")
    except ImportError:  # reported by the start itself
        yield
        return
    launch = context.launch_gateway

    def launch_whole(*args: Any, **named: Any) -> Any:
        with signals_kept():
            return launch(*args, **named)

    context.launch_gateway = launch_whole  # PySpark has no seam here
    try:
        yield
    finally:
        context.launch_gateway = launch


def show_ranges(copied: "Copied") -> None:
    """Print what a copy still has to do, queue by queue."""
    if not copied.left:
        return
    table = Table("queue", "from", "to", "messages", box=None, padding=(0, 1))
    for column in table.columns[1:]:
        column.justify = "right"
    for part in copied.left:
        name = f"{part.queue.broker_name}/{part.queue.queue_id}"
        table.add_row(name, f"{part.start:,}", f"{part.end:,}", f"{part.size:,}")
    Console(highlight=False, soft_wrap=True).print(table)


def ranges_table(copied: "Copied") -> Rows:
    """The same for programs."""
    columns = (("QUEUE", "queue"), ("FROM", "from"), ("TO", "to"), ("MESSAGES", "messages"))
    rows: list[list[Value]] = [
        [f"{part.queue.broker_name}/{part.queue.queue_id}", part.start, part.end, part.size]
        for part in copied.left
    ]
    return rows_of(columns, rows)


@contextmanager
def shown_progress(what: str) -> Iterator[OnStep]:
    """Show a job's steps: a bar on a terminal, elsewhere a line per commit."""
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

        def on_step(step: JobStep) -> None:
            text = f"{what}: {step.name}"
            progress.update(task, completed=step.done, total=step.of, description=text)

        yield on_step


_QUIET_STEPS = frozenset(
    {"under way", "sent", "written", "moved", "moving", "progress", "compacted", "compacted moved"}
)
_STEPS_OF_FILES = {"compacted committed": "merged {}", "dropped": "deleted {} merged before"}


def _print_step(what: str, step: JobStep) -> None:
    if step.name in _QUIET_STEPS:
        return
    if step.name in _STEPS_OF_FILES:
        done = _STEPS_OF_FILES[step.name].format(counted(step.rows, "file"))
        click.echo(f"{what}: {done}", err=True)
        return
    of = f" of {step.of:,}" if step.of is not None else ""
    if step.sent is not None:
        at = f"{step.done:,}{of} looked at, {step.sent:,} sent"
        name = "" if step.name == "committed" else f"{step.name}, "
        click.echo(f"{what}: {name}{at}", err=True)
        return
    rows = f" {step.rows:,} rows" if step.rows else ""
    click.echo(f"{what}: {step.name}{rows}, {step.done:,}{of} done", err=True)
