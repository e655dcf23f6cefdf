"""Commands that run a server, and have verbs for servers that already run elsewhere.

```
sparrowmq broker --port 10911         runs a server: there is no verb
sparrowmq broker run --port 10911     the same
sparrowmq broker promote broker-a     a verb, with options of its own
```

Settings are for starting a server. With a verb they are refused, whether before or after it:
`sparrowmq broker --port 10921 promote broker-a` would look as if it reached the broker at that
port.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from sparrowmq.cli.command_group import LazyGroup
from sparrowmq.cli.settings.environment import warn_of_unknown_variables
from sparrowmq.cli.settings.options import SettingsCommand

RUN = "run"


class ServerGroup(LazyGroup):
    """Runs `server` without a verb and with `run`; `modules` has the other verbs, like the commands
    of a LazyGroup."""

    def __init__(self, server: SettingsCommand, *, modules: Mapping[str, str]) -> None:
        super().__init__(server.name, help=server.help, callback=_before_verb, modules=modules)
        self._server = copy(server)
        self._server.options_metavar = "[OPTIONS] | COMMAND …"
        self._server.epilog = f"Commands: {', '.join([RUN, *modules])}. Each has --help."
        self._run = copy(server)
        self._run.name = RUN
        own = f"sparrowmq {server.name}"
        self._run.help = (server.help or "").replace(own, f"{own} {RUN}")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return [RUN, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb."""
        return self._run if cmd_name == RUN else super().get_command(ctx, cmd_name)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        """The context of this group, or of its server if there is no verb."""
        is_completed = more.get("resilient_parsing") and not args
        if is_completed or (args and not args[0].startswith("-")):
            return super().make_context(info_name, args, parent, **more)
        more |= {"allow_extra_args": True, "allow_interspersed_args": False}
        ctx = self._server.make_context(info_name, args, parent, **more)
        self._check_rest(ctx)
        return ctx

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs, and the settings of the server that runs without a verb."""
        found = super().shell_complete(ctx, incomplete)
        known = {each.value for each in found}
        settings = self._server.shell_complete(ctx, incomplete)
        return [*found, *(each for each in settings if each.value not in known)]

    def _check_rest(self, ctx: click.Context) -> None:
        """Raises UsageError for anything after the settings: a verb comes first."""
        if not ctx.args:
            return
        verb = ctx.args[0]
        if verb == RUN:
            raise click.UsageError(f"settings come after {RUN}: {ctx.command_path} {RUN} …", ctx)
        if verb not in self.list_commands(ctx):
            raise click.UsageError(f"Got unexpected extra argument ({verb})", ctx)
        given = [
            option.opts[0]
            for option in self._server.params
            if option.name and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        ]
        raise click.UsageError(_refusal(", ".join(given), verb, ctx), ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. Raises UsageError for settings of the server."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if any(error.option_name in option.opts for option in self._server.params):
                text = _refusal(error.option_name, ctx.invoked_subcommand, ctx)
                raise click.UsageError(text, error.ctx) from error
            raise


@click.pass_context
def _before_verb(ctx: click.Context) -> None:
    """Report unknown variables, but only for verbs: servers report theirs, perhaps as JSON."""
    if ctx.invoked_subcommand != RUN:
        warn_of_unknown_variables()


def _refusal(flags: str, verb: str | None, ctx: click.Context) -> str:
    return (
        f"{flags} is for a server that is started, and {verb} works on servers that run; what it"
        f" takes: {ctx.command_path} {verb} --help"
    )
