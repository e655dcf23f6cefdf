"""`sparrowmq pipeline …`: jobs on Spark."""

import sys
from importlib import import_module
from typing import Any

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.spark.errors import RocketMQError

# command → module and name in it; imported when it is used
_COMMANDS = {
    "archive": ("pipeline_archive", "archive"),
    "drain": ("pipeline_drain", "drain"),
    "replay": ("pipeline_copies", "replay"),
    "dead-letters": ("pipeline_copies", "dead_letters"),
}


class JobGroup(Group):
    """Tells an ordinary failure in one line, with exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        found: click.Command = getattr(import_module(f"sparrowmq.cli.commands.{module}"), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (RocketMQError, ImportError) as error:
            click.echo(f"sparrowmq: {error}", err=True)
        except KeyboardInterrupt:
            click.echo("sparrowmq: stopped; run it again to go on", err=True)
            sys.exit(130)
        except Exception as error:
            reason = spark_reason(error)
            if reason is None:
                raise
            click.echo(f"sparrowmq: {reason}", err=True)
        sys.exit(1)


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


@click.group(cls=JobGroup)
def pipeline() -> None:
    """Jobs on Spark: archive, drain, replay, dead letters."""


def commands() -> list[click.Command]:
    """For the program."""
    return [pipeline]
