"""Groups of commands that know what somebody who mistyped one may have meant."""

import click

from sparrowmq.cli.settings.settings import nearest


class Group(click.Group):
    """Names the commands there are when another one is asked for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command. Raises UsageError that names the nearest one and all others."""
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
