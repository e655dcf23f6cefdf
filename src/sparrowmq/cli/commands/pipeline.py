"""`sparrowmq pipeline …`: jobs on Spark."""

import re
import sys
import traceback
from typing import Any

import click

from sparrowmq.cli.command_group import LazyGroup
from sparrowmq.cli.commands.pipeline_options import is_verbose
from sparrowmq.spark.errors import RocketMQError

_JAVA_CALL = re.compile("An error occurred while calling ")
"""How py4j's message begins; the reason is on the next line, after the name of Java's class."""
_JAVA_CLASS = re.compile(r"^: (?:[\w$]+\.)+[\w$]+: ")
_OURS = re.compile(r"(?:^|: )sparrowmq\.spark\.[\w.]+: (.+)")
"""One of our errors as Python or Java reports it, by its class and its text."""

_MODULES = {
    "archive": "pipeline_archive",
    "drain": "pipeline_drain",
    "replay": "pipeline_copies",
    "dead-letters": "pipeline_copies",
}


class JobGroup(LazyGroup):
    """Reports a failure with one message and exit code 1; --verbose adds its trace."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except OSError:  # the program reports these itself
            _show_trace()
            raise
        except Exception as error:
            click.echo(f"sparrowmq: {_message(error)}", err=True)
            _show_trace()
        sys.exit(1)

    def report_stop(self, number: int) -> None:
        """Report that the next run of a job continues where this one was."""
        super().report_stop(number)
        click.echo("sparrowmq: stopped; run it again to go on", err=True)


def _show_trace() -> None:
    if is_verbose():
        click.echo(traceback.format_exc(), err=True)


def _message(error: Exception) -> str:
    if isinstance(error, RocketMQError | ImportError):
        return str(error)
    reason = spark_reason(error)
    if reason is not None:
        return reason
    return f"{type(error).__name__}: {error} (a bug in SparrowMQ; --verbose shows its trace)"


def spark_reason(error: Exception) -> str | None:
    """What went wrong in Spark, without the stack trace; None for an error from elsewhere."""
    if sys.modules.get("pyspark") is None:
        return None
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [found[1] for line in lines if (found := _OURS.search(line))]
    if ours:
        return ours[-1]
    if _JAVA_CALL.match(lines[0]) and len(lines) > 1:
        return _JAVA_CLASS.sub("", lines[1])
    return lines[0]


def java_failed(error: Exception) -> bool:
    """Whether Java raised this error: its message says why."""
    if sys.modules.get("pyspark") is None:
        return False
    from py4j.protocol import Py4JJavaError

    return isinstance(error, Py4JJavaError)


@click.group(cls=JobGroup, modules=_MODULES)
def pipeline() -> None:
    """Run jobs on Spark: archive, drain, replay, dead letters."""


def commands() -> list[click.Command]:
    """For the program."""
    return [pipeline]
