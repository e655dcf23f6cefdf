"""The program `sparrowmq`. Commands are imported when they are used."""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from sparrowmq import __version__
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.output import warn_of_unknown_variables

# command → module of sparrowmq.cli.commands
_LAZY = {
    "nameserver": "servers",
    "broker": "servers",
    "up": "servers",
    "config": "config",
    "topic": "topic",
    "store": "store",
    "send": "message",
    "consume": "message",
    "pipeline": "pipeline",
    "spark": "spark",
}
# `config` lists what it does not know; servers were perhaps asked for JSON.
_WARN_THEMSELVES = frozenset({"config", "nameserver", "broker", "up"})


class LazyGroup(Group):
    """Knows the names of its commands; imports the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(_LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        make = self._module(cmd_name)
        if make is None:
            return None
        return next((command for command in make() if command.name == cmd_name), None)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it with the code that shells know for that."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # the terminal has written ^C
            sys.exit(128 + signal.SIGINT)

    def _module(self, name: str) -> Callable[[], list[click.Command]] | None:
        module = _LAZY.get(name)
        if module is None:
            return None
        made: Callable[[], list[click.Command]] = import_module(
            f"sparrowmq.cli.commands.{module}"
        ).commands
        return made


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="sparrowmq")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Apache RocketMQ for Python and Spark people.

    \b
    A first look:
      sparrowmq up                              # a name server and a broker, until Ctrl-C
      sparrowmq send orders "hello"             # in another terminal
      sparrowmq consume orders --group billing
    """
    if ctx.invoked_subcommand not in _WARN_THEMSELVES:
        warn_of_unknown_variables()


def main() -> None:
    """Entry point."""
    # numpy's linear algebra, which we do not use, starts a thread for every core otherwise.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app(prog_name="sparrowmq")
    except OSError as error:  # a full disk behind `> file`, for instance
        where = f"{error.filename}: " if error.filename else ""
        print(f"sparrowmq: {where}{error.strerror or error}", file=sys.stderr, flush=True)
        os._exit(1)  # an orderly exit would try to write the rest again


if __name__ == "__main__":
    main()
