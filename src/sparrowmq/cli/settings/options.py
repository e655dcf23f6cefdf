"""Options of commands, made from settings; their help is the text below each field."""

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import click

from sparrowmq.cli.settings.servers import SHORT
from sparrowmq.cli.settings.settings import Setting, SettingError


class SettingOption(click.Option):
    """An option made from a setting. Its help is the field's own text, read when it is needed."""

    def __init__(self, setting: Setting, flag: str, parameter: str, **more: Any) -> None:
        super().__init__([f"--{flag}", parameter], metavar="VALUE", **more)
        self.setting = setting
        self.also = ""
        """Another flag for the same setting."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Flag and text."""
        if self.hidden:
            return None
        text = field_text(self.setting.owner, self.setting.field)
        default = self.setting.show(self.setting.default)
        names = ", ".join([*self.opts, *filter(None, [self.also])])
        return f"{names} VALUE", f"{text}  [default: {default}]".strip()


@cache
def _texts(owner: type) -> dict[str, str]:
    """The texts below a configuration class's fields."""
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if is_field and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return texts


def field_text(owner: type, field: str) -> str:
    """What a field means, in the words of its class."""
    return _texts(owner).get(field, "")


def options(settings: list[Setting], *, with_short: bool = False) -> list[click.Parameter]:
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
