"""Options of commands, made from settings; their help is the meaning that each field declares."""

from pathlib import Path
from typing import Any

import click

from sparrowmq.cli.settings.servers import SHORT
from sparrowmq.cli.settings.settings import ServerSetting, SettingError


class SettingOption(click.Option):
    """An option made from a setting; it shows the field's own meaning and default as its help."""

    def __init__(self, setting: ServerSetting, flag: str, parameter: str, **more: Any) -> None:
        super().__init__([f"--{flag}", parameter], metavar="VALUE", **more)
        self.setting = setting
        self.also = ""
        """Another flag for the same setting."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Flag and text."""
        if self.hidden:
            return None
        default = self.setting.show(self.setting.default)
        names = ", ".join([*self.opts, *filter(None, [self.also])])
        return f"{names} VALUE", f"{self.setting.meaning}  [default: {default}]"


def options(settings: list[ServerSetting], *, with_short: bool = False) -> list[click.Parameter]:
    """Options for settings; `with_short` lets `--port` stand for `--nameserver-port`."""
    made: list[click.Parameter] = []
    for setting in settings:
        parameter = setting.name.replace("-", "_")
        full = SettingOption(setting, setting.name, parameter)
        made.append(full)
        if with_short:
            # A parameter of its own: an error names the flag that was written.
            short = setting.name.partition("-")[2]
            full.also = f"--{short}"
            made.append(SettingOption(setting, short, SHORT + parameter, hidden=True))
    return made


def config_option() -> click.Option:
    """The file of settings."""
    return click.Option(
        ["--config", "config_file"],
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        envvar="SPARROWMQ_CONFIG",
        help="A TOML file, or Apache's broker.conf.",
    )


class SettingsCommand(click.Command):
    """Turns wrong settings into exit code 2 with one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SettingError as error:
            raise click.UsageError(str(error), ctx) from error
