"""`sparrowmq config show`."""

import os
from pathlib import Path
from typing import Any

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.descriptors import Descriptors, TooFewDescriptors
from sparrowmq.cli.settings.environment import unknown_variables
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
from sparrowmq.cli.settings.settings import SettingError

_HELP = """Show every setting, its value, and where it came from.

A setting flush-interval is the flag --flush-interval, the environment variable
SPARROWMQ_FLUSH_INTERVAL and the key flush-interval in a TOML file. Variables that begin with
SPARROWMQ_ without being a setting are listed at the end.

\b
Examples:
  sparrowmq config show
  sparrowmq config show nameserver
  sparrowmq config show --config broker.conf
"""


def _show(server: str, config_file: Path | None, **values: Any) -> None:
    is_names = server == "nameserver"
    settings = nameserver_settings() if is_names else broker_settings()
    file = read_file(config_file, server)
    given = given_settings(settings, values, file)
    config = nameserver_config(values, file) if is_names else broker_config(values, file)
    descriptors = Descriptors.possible_for(config)
    try:
        fitted = descriptors.fit(config)
    except TooFewDescriptors as error:
        raise SettingError(str(error)) from error
    width = max(len(setting.name) for setting in settings)
    for setting in settings:
        wanted, value = (setting.show(setting.value_in(each)) for each in (config, fitted))
        origin = given[setting.name].origin if setting.name in given else "default"
        if value != wanted:
            origin += f" is {wanted}; a server started here may open {descriptors.limit} files"
        click.echo(f"{setting.name:<{width}}  {value}  ({origin})")
    for unknown in unknown_variables(os.environ, all_settings()):
        meant = f"; did you mean {unknown.meant.variable}?" if unknown.meant else ""
        click.echo(f"{unknown.name:<{width}}  not known, without effect{meant}  (environment)")


def commands() -> list[click.Command]:
    """For the program."""
    server = click.Argument(
        ["server"], type=click.Choice(["broker", "nameserver"]), default="broker", required=False
    )
    config = Group("config", help="Show settings.")
    parameters = [server, config_option(), *options(all_settings())]
    config.add_command(SettingsCommand("show", callback=_show, params=parameters, help=_HELP))
    return [config]
