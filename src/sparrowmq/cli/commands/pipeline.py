"""`sparrowmq pipeline …`: jobs on Spark."""

import sys
from typing import Any

import click

from sparrowmq.cli.command_group import LazyGroup
from sparrowmq.spark.errors import RocketMQError

_MODULES = {
    "archive": "pipeline_archive",
    "drain": "pipeline_drain",
    "replay": "pipeline_copies",
    "dead-letters": "pipeline_copies",
}


class JobGroup(LazyGroup):
    """Reports an ordinary failure in one line, with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (RocketMQError, ImportError) as error:
            click.echo(f"sparrowmq: {error}", err=True)
        except Exception as error:
            reason = spark_reason(error)
            if reason is None:
                raise
            click.echo(f"sparrowmq: {reason}", err=True)
        sys.exit(1)

    def report_stop(self, number: int) -> None:
        """Every job goes on where it was."""
        super().report_stop(number)
        click.echo("sparrowmq: stopped; run it again to go on", err=True)


def spark_reason(error: Exception) -> str | None:
    """What went wrong in Spark, without its stack; None for an error that is not Spark's."""
    if sys.modules.get("pyspark") is None:
        return None
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("sparrowmq.spark.")]
    return ours[-1].partition(": ")[2] if ours else lines[0]


@click.group(cls=JobGroup, modules=_MODULES)
def pipeline() -> None:
    """Run jobs on Spark: archive, drain, replay, dead letters."""


def commands() -> list[click.Command]:
    """For the program."""
    return [pipeline]
