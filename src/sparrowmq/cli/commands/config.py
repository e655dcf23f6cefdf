"""`sparrowmq config show`."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.descriptors import Descriptors, TooFewDescriptors
from sparrowmq.cli.logs import LogLevel, log_level_option, print_warning
from sparrowmq.cli.output import Report, table
from sparrowmq.cli.settings.environment import UnknownVariable, unknown_variables
from sparrowmq.cli.settings.options import SettingsCommand, config_option, options
from sparrowmq.cli.settings.servers import (
    address_warnings,
    all_settings,
    broker_config,
    broker_settings,
    given_settings,
    nameserver_config,
    nameserver_settings,
    read_file,
)
from sparrowmq.cli.settings.settings import FoundSettings, ServerSetting, SettingError
from sparrowmq.cli.shell import Shell

_HELP = """Show every setting, its value, and where it came from.

A setting flush-interval is the flag --flush-interval, the environment variable
SPARROWMQ_FLUSH_INTERVAL and the key flush-interval in a TOML file. Variables that begin with
SPARROWMQ_ without being a setting are listed at the end. Settings that a server would refuse are
all named, with exit code 2; give --insecure if the server is started with it.

\b
Examples:
  sparrowmq config show
  sparrowmq config show nameserver --changed
  sparrowmq config show --config broker.conf --json
"""


class _Shown(NamedTuple):
    """One setting as a server would use it."""

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
    server: str,
    config_file: Path | None,
    changed: bool,
    as_json: bool,
    insecure: bool,
    log_level: LogLevel,
    **values: Any,
) -> None:
    file = read_file(config_file, server)
    problems = (*filter(None, [log_level.problem]), *_useless_flags(server, values))
    file = replace(file, problems=(*problems, *file.problems))
    warnings = [*file.warnings, *(address_warnings(values, file) if server == "broker" else ())]
    unknown = list(unknown_variables(os.environ, all_settings()))
    everything = [*warnings, *(each.text for each in unknown)]
    try:
        found = list(_settings(server, file, values, insecure=insecure))
    except SettingError as error:
        if as_json:
            _print_json(server, [], everything, error.problems)
            sys.exit(2)
        for warning in everything:
            print_warning(warning)
        raise
    shown = [each for each in found if each.is_changed or not changed]
    if as_json:
        _print_json(server, shown, everything)
        return
    for warning in warnings:
        print_warning(warning)
    _print(shown, unknown)


def _settings(
    server: str, file: FoundSettings, values: dict[str, Any], *, insecure: bool
) -> Iterator[_Shown]:
    """The settings. Raises SettingError with every problem, as the server's own command would."""
    settings = _settings_of(server)
    given = given_settings(settings, values, file).given
    make = nameserver_config if server == "nameserver" else broker_config
    config = make(values, file, insecure=insecure)
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


def _settings_of(server: str) -> list[ServerSetting]:
    return nameserver_settings() if server == "nameserver" else broker_settings()


def _useless_flags(server: str, values: dict[str, Any]) -> Iterator[str]:
    """Errors for flags of the other server, which would have no effect."""
    names = {setting.name for setting in _settings_of(server)}
    for other in all_settings():
        if other.name in names or values[other.name.replace("-", "_")] is None:
            continue
        meant = f"nameserver-{other.name}"
        maybe = f"; did you mean --{meant}?" if meant in names else ""
        yield f"flag --{other.name} is not a setting of a {server}{maybe}"


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
    rows = [[each.name, each.value, each.origin] for each in shown]
    for variable in unknown:
        hint = f"; {variable.hint}" if variable.hint else ""
        rows.append([variable.name, f"not known, without effect{hint}", "environment"])
    columns = (("KEY", "key"), ("VALUE", "value"), ("ORIGIN", "origin"))
    found = table(columns, rows, empty="every setting has its default")
    Shell(name_servers="").show(Report([found]))


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
    insecure = click.Option(
        ["--insecure"],
        is_flag=True,
        help="Check addresses as a server that is started with --insecure does.",
    )
    log_level = log_level_option()
    log_level.hidden = True  # a server's; nothing is logged here
    config = Group("config", help="Show settings.")
    show = SettingsCommand(
        "show",
        callback=_show,
        params=[
            *(server, config_option(), changed, as_json, insecure, log_level),
            *options(all_settings()),
        ],
        help=_HELP,
        groups={"Options": ("config", "changed", "json", "insecure")},
    )
    config.add_command(show)
    return [config]
