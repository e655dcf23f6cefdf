"""Command options made from settings; their help texts are the fields' own docstrings.

`--help` shows the options that most people need, in groups, and fits on a screen; `--help-all`
shows all of them.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sparrowmq.cli.logs import log_error
from sparrowmq.cli.settings.servers import SHORT
from sparrowmq.cli.settings.settings import ServerSetting, SettingError
from sparrowmq.cli.values import metavar_of

_REST = {
    "-h": "Help",
    "help": "Help",
    "nameserver-": "More settings of the name server",
    "store-": "More settings of the store",
    "limit-": "More settings of connections",
    "": "More settings",
}
"""The title under which `--help-all` lists an option, by the beginning of its name."""
_ALL = "sparrowmq.help_all"
"""The key in a command's context which says that all options were requested."""


class SettingOption(click.Option):
    """An option made from a setting; its help shows the field's meaning and default."""

    def __init__(self, setting: ServerSetting, flag: str, parameter: str, **more: Any) -> None:
        metavar = metavar_of(setting.kind, setting.field)
        super().__init__([f"--{flag}", parameter], metavar=metavar, **more)
        self.setting = setting
        self.also = ""
        """Another flag for the same setting."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The flag and its help text."""
        if self.hidden:
            return None
        default = self.setting.show(self.setting.default)
        shown = "" if default == "(none)" else f"  [default: {default}]"
        names = ", ".join([*filter(None, [self.also]), *self.opts])
        meaning = self.setting.meaning
        if _ALL not in ctx.meta:  # one statement, without Apache's name at its end
            meaning = re.sub(r" \([a-z]+[A-Z]\w+\)$", "", re.split(r"[.;] |\.$", meaning)[0]) + "."
        return f"{names} {self.metavar}", f"{meaning}{shown}"


def options(
    settings: list[ServerSetting], *, with_short: bool = False, hidden: Sequence[str] = ()
) -> list[click.Parameter]:
    """Options for settings; `with_short` lets `--port` stand for `--nameserver-port`."""
    made: list[click.Parameter] = []
    for setting in settings:
        parameter = setting.name.replace("-", "_")
        full = SettingOption(setting, setting.name, parameter, hidden=setting.name in hidden)
        made.append(full)
        if with_short:
            # A separate parameter, so that an error names the flag that the user wrote.
            short = setting.name.partition("-")[2]
            full.also = f"--{short}"
            made.append(SettingOption(setting, short, SHORT + parameter, hidden=True))
    return made


def config_option() -> click.Option:
    """The option --config, for the settings file."""
    return click.Option(
        ["--config", "config_file"],
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        envvar="SPARROWMQ_CONFIG",
        help="Settings: a TOML file, or Apache's broker.conf.",
    )


class SettingsCommand(click.Command):
    """A command whose options are settings. Wrong settings end it with code 2; it names all of
    them.

    `groups` are the options that `--help` shows, by title.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._groups = groups
        help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options and exit.",
        )
        self.params.append(help_all)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SettingError as error:
            if not ctx.params.get("as_json"):
                raise click.UsageError(str(error), ctx) from error
            for problem in error.problems:
                log_error(problem)
            sys.exit(2)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups; the rest only on request."""
        records = {
            option.opts[0].removeprefix("--"): record
            for option in self.get_params(ctx)
            if (record := option.get_help_record(ctx)) is not None
        }
        groups = {title: list(names) for title, names in self._groups.items()}
        shown = {name for names in groups.values() for name in names}
        rest = [name for name in records if name not in shown]
        if _ALL in ctx.meta:
            for name in rest:
                title = next(text for start, text in _REST.items() if name.startswith(start))
                groups.setdefault(title, []).append(name)
        for title, names in groups.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names])
        if _ALL not in ctx.meta:
            formatter.write_paragraph()
            formatter.write_text(f"{len(rest)} more options: {ctx.command_path} --help-all")


def _show_all(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
