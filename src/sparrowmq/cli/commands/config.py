"""`sparrowmq config show`."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.descriptors import Descriptors, TooFewDescriptors
from sparrowmq.cli.logs import print_warning
from sparrowmq.cli.settings.environment import UnknownVariable, unknown_variables
from sparrowmq.cli.settings.options import SettingsCommand, config_option, options
from sparrowmq.cli.settings.servers import (
    all_settings,
    broker_config,
    broker_settings,
    given_settings,
    nameserver_config,
    nameserver_settings,
    read_file,
)
from sparrowmq.cli.settings.settings import Found, ServerSetting, SettingError

_HELP = """Show every setting, its value, and where it came from.

A setting flush-interval is the flag --flush-interval, the environment variable
SPARROWMQ_FLUSH_INTERVAL and the key flush-interval in a TOML file. Variables that begin with
SPARROWMQ_ without being a setting are listed at the end. Settings that a server would refuse are
all named, with exit code 2.

\b
Examples:
  sparrowmq config show
  sparrowmq config show nameserver --changed
  sparrowmq config show --config broker.conf --json
"""


class _Shown(NamedTuple):
    """One setting as a server would have it."""

    name: str
    value: str
    default: str
    origin: str
    is_changed: bool

    def as_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "default": self.default,
            "origin": self.origin,
            "changed": self.is_changed,
        }


def _show(
    server: str, config_file: Path | None, changed: bool, as_json: bool, **values: Any
) -> None:
    file = read_file(config_file, server)
    unknown = list(unknown_variables(os.environ, all_settings()))
    try:
        shown = [each for each in _settings(server, file, values) if each.is_changed or not changed]
    except SettingError as error:
        if not as_json:
            raise
        _print_json(server, [], _warnings(file, unknown), error.problems)
        sys.exit(2)
    if as_json:
        _print_json(server, shown, _warnings(file, unknown))
        return
    for warning in file.warnings:
        print_warning(warning)
    _print(shown, unknown)


def _settings(server: str, file: Found, values: dict[str, Any]) -> Iterator[_Shown]:
    """Raises SettingError with every problem."""
    is_names = server == "nameserver"
    settings = nameserver_settings() if is_names else broker_settings()
    _check_flags(server, settings, values)
    given = given_settings(settings, values, file).given
    make = nameserver_config if is_names else broker_config
    config = make(values, file, insecure=True)
    descriptors = Descriptors.possible_for(config)
    try:
        fitted = descriptors.fit(config)
    except TooFewDescriptors as error:
        raise SettingError(str(error)) from error
    for setting in settings:
        wanted, value = (setting.show(setting.value_in(each)) for each in (config, fitted))
        found = given.get(setting.name)
        origin = found.origin if found is not None else "default"
        is_changed = found is not None and found.value != setting.default
        if value != wanted:
            origin += f" is {wanted}; a server started here may open {descriptors.limit} files"
            is_changed = True
        yield _Shown(setting.name, value, setting.show(setting.default), origin, is_changed)


def _check_flags(server: str, settings: list[ServerSetting], values: dict[str, Any]) -> None:
    """Refuse flags of the other server, which would change nothing."""
    names = {setting.name for setting in settings}
    problems = []
    for other in all_settings():
        if other.name in names or values[other.name.replace("-", "_")] is None:
            continue
        meant = f"nameserver-{other.name}"
        maybe = f"; did you mean --{meant}?" if meant in names else ""
        problems.append(f"flag --{other.name} is not a setting of a {server}{maybe}")
    if problems:
        raise SettingError(*problems)


def _warnings(file: Found, unknown: list[UnknownVariable]) -> list[str]:
    return [*file.warnings, *(each.text for each in unknown)]


def _print_json(
    server: str, shown: list[_Shown], warnings: list[str], problems: tuple[str, ...] = ()
) -> None:
    document = {
        "server": server,
        "settings": {each.name: each.as_json() for each in shown},
        "warnings": warnings,
        "problems": problems,
    }
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _print(shown: list[_Shown], unknown: list[UnknownVariable]) -> None:
    names = [*(each.name for each in shown), *(each.name for each in unknown)]
    width = max(map(len, names), default=0)
    for each in shown:
        click.echo(f"{each.name:<{width}}  {each.value}  ({each.origin})")
    for variable in unknown:
        meant = f"; did you mean {variable.meant.variable}?" if variable.meant else ""
        click.echo(f"{variable.name:<{width}}  not known, without effect{meant}  (environment)")


def commands() -> list[click.Command]:
    """For the program."""
    server = click.Argument(
        ["server"], type=click.Choice(["broker", "nameserver"]), default="broker", required=False
    )
    changed = click.Option(
        ["--changed"], is_flag=True, help="Show only settings whose value is not the default."
    )
    as_json = click.Option(
        ["--json", "as_json"], is_flag=True, help="Print one JSON object, with all problems."
    )
    config = Group("config", help="Show settings.")
    show = SettingsCommand(
        "show",
        callback=_show,
        params=[server, config_option(), changed, as_json, *options(all_settings())],
        help=_HELP,
        groups={"Options": ("config", "changed", "json")},
    )
    config.add_command(show)
    return [config]
