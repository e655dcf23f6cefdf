"""Groups of commands: imported on use, and helpful about mistyped names."""

import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from sparrowmq.cli.settings.settings import nearest
from sparrowmq.cli.stop_signal import STOPPED_BY, sigterm_like_ctrl_c


class Group(click.Group):
    """Lists its commands when asked for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command. Raises UsageError that names the most similar one and all others."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = self.list_commands(ctx)
            if args[0] in names or args[0].startswith("-"):
                raise
            meant = nearest(args[0], names)
            maybe = f"did you mean {meant}? " if meant else ""
            text = f"there is no command {args[0]!r}; {maybe}there are: {', '.join(names)}"
            raise click.UsageError(text, ctx) from error


class LazyGroup(Group):
    """Knows the names of its commands, and imports the module of the requested one.

    Commands need different libraries, and some of them take a second to import: `sparrowmq send`
    must not wait for Spark. `modules` maps each command to a module of `sparrowmq.cli.commands`,
    whose function `commands` returns it.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._modules:
            return None
        module = import_module(f"sparrowmq.cli.commands.{self._modules[cmd_name]}")
        made: list[click.Command] = module.commands()
        return next(command for command in made if command.name == cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; SIGINT (Ctrl-C) and SIGTERM end it with the exit codes of shells."""
        try:
            with sigterm_like_ctrl_c(ctx.meta):
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            number = ctx.meta.get(STOPPED_BY, signal.SIGINT)
            self.report_stop(number)
            for note in getattr(stop, "__notes__", ()):  # of `changing`
                click.echo(f"sparrowmq: {note}", err=True)
            sys.exit(128 + number)

    def report_stop(self, number: int) -> None:
        """Report what a signal has ended, if there is something to report."""
        if number == signal.SIGINT:
            click.echo(err=True)  # the terminal has written ^C
