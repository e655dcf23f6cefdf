"""`nameserver`, `broker` and `up`: commands whose options are the settings.

The verbs of `nameserver` and `broker` are in separate modules.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from sparrowmq.broker.config import MASTER_ID
from sparrowmq.cli.console_child import DEFAULT_PORT, open_child
from sparrowmq.cli.logs import (
    LogLevel,
    Warn,
    log_level_option,
    log_warning,
    print_warning,
    set_up_logs,
)
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.server_group import ServerGroup
from sparrowmq.cli.settings.environment import warn_of_unknown_variables
from sparrowmq.cli.settings.options import SettingsCommand, config_option, options
from sparrowmq.cli.settings.servers import (
    MOST_BROKERS,
    address_warnings,
    all_settings,
    broker_config,
    broker_settings,
    configs_of_both,
    nameserver_config,
    nameserver_settings,
    read_file,
)
from sparrowmq.cli.settings.settings import FoundSettings, Given

_PORTS_OF_UP = "--port, or with --nameserver-port the name server's"


def common_options() -> list[click.Parameter]:
    """The options of every server command besides settings."""
    return [
        config_option(),
        log_level_option(),
        click.Option(["--json", "as_json"], is_flag=True, help="Log one JSON object per line."),
        click.Option(
            ["--insecure"],
            is_flag=True,
            help="Allow listening on addresses that others can reach.",
        ),
    ]


def _start_logs(as_json: bool, log_level: LogLevel) -> Warn:
    """Set up logs before anything is read: warnings about settings already go to the log."""
    set_up_logs(as_json=as_json, level=log_level.level)
    warn = log_warning if as_json else print_warning
    warn_of_unknown_variables(warn)
    return warn


def _read(path: Path | None, server: str, log_level: LogLevel, warn: Warn) -> FoundSettings:
    """The settings in the file. A wrong log level is one more problem of the settings."""
    file = read_file(path, server)
    for warning in file.warnings:
        warn(warning)
    return replace(file, problems=(*filter(None, [log_level.problem]), *file.problems))


def _nameserver(
    config_file: Path | None, log_level: LogLevel, as_json: bool, insecure: bool, **values: Any
) -> None:
    from sparrowmq.cli.serve import run, serve_nameserver

    file = _read(config_file, "nameserver", log_level, _start_logs(as_json, log_level))
    config = nameserver_config(values, file, insecure=insecure)
    sys.exit(run(serve_nameserver(config), as_json=as_json))


def _broker(
    config_file: Path | None,
    log_level: LogLevel,
    as_json: bool,
    insecure: bool,
    with_parent: bool,
    **values: Any,
) -> None:
    from sparrowmq.cli.serve import run, serve_broker

    warn = _start_logs(as_json, log_level)
    file = _read(config_file, "broker", log_level, warn)
    for text in address_warnings(values, file):
        warn(text)
    config = broker_config(values, file, insecure=insecure)
    sys.exit(run(serve_broker(config, with_parent=with_parent), as_json=as_json))


def _up(
    brokers: int,
    slaves: int,
    config_file: Path | None,
    log_level: LogLevel,
    as_json: bool,
    insecure: bool,
    no_console: bool,
    console_port: int,
    **values: Any,
) -> None:
    from sparrowmq.cli.local_cluster import first_data_dir, not_served, serve_several
    from sparrowmq.cli.serve import run, serve_up

    warn = _start_logs(as_json, log_level)
    file = _read(config_file, "broker", log_level, warn)
    for text in (*_overruled(values, file.given, brokers), *address_warnings(values, file)):
        warn(text)
    names, first = configs_of_both(values, file, insecure=insecure)
    first = replace(first, broker_id=MASTER_ID)
    if names.kv_config_path is None:
        names = replace(names, kv_config_path=first.data_dir / "namesrv" / "kvConfig.json")
    for path, how in not_served(first, brokers).items():
        warn(
            f"{path} has messages of another broker, which are not served; this serves them: {how}"
        )
    wish = None if no_console else partial(open_child, console_port, as_json=as_json)
    if brokers > 1 or slaves:
        flags = ["--insecure"] * insecure + ["--json"] * as_json + ["--log-level", log_level.level]
        several = serve_several(names, first, brokers, slaves, flags, console=wish)
        sys.exit(run(several, as_json=as_json, ports=_PORTS_OF_UP))
    data = first.data_dir
    alone = serve_up(names, replace(first, data_dir=first_data_dir(first, 1)), data, console=wish)
    sys.exit(run(alone, as_json=as_json, ports=_PORTS_OF_UP))


def _overruled(values: Mapping[str, Any], file: Mapping[str, Given], brokers: int) -> Iterator[str]:
    """Given settings that `up` overrides. The variable for name servers is for clients."""
    overruled = {
        "name-servers": "`up` runs a name server itself; see: sparrowmq broker --help",
        "broker-id": "`up` runs masters, and their slaves with --slaves",
    }
    if brokers > 1:
        overruled["broker-name"] = (
            "each of the brokers has a name of its own: broker-a, broker-b, …"
        )
    for name, why in overruled.items():
        is_flag = values.get(name.replace("-", "_")) is not None
        if is_flag or name in file:
            yield f"{f'flag --{name}' if is_flag else file[name].origin} has no effect, {why}"


def commands() -> list[click.Command]:
    """The commands, ready to be added to the program."""
    return [
        ServerGroup(_nameserver_command(), modules=_NAMESERVER_VERBS),
        ServerGroup(_broker_command(), modules=_BROKER_VERBS),
        _up_command(),
    ]


def _nameserver_command() -> SettingsCommand:
    return SettingsCommand(
        "nameserver",
        callback=_nameserver,
        params=[*common_options(), *options(nameserver_settings(), with_short=True)],
        help=_NAMESERVER,
        groups={
            "Addresses": (
                *("nameserver-port", "nameserver-listen"),
                *("nameserver-metrics-port", "nameserver-metrics-listen", "insecure"),
            ),
            "Settings and logs": _SETTINGS_AND_LOGS,
        },
    )


def _broker_command() -> SettingsCommand:
    with_parent = click.Option(
        ["--with-parent"],
        is_flag=True,
        help="Stop when standard input closes, as it does when the parent ends.",
    )
    return SettingsCommand(
        "broker",
        callback=_broker,
        params=[with_parent, *common_options(), *options(broker_settings())],
        help=_BROKER,
        groups={
            "Cluster": ("name-servers", "broker-name", "broker-id"),
            "Addresses": ("port", "listen", "advertise", "metrics-port", "insecure"),
            "Messages": ("data", "flush", "replication"),
            "Settings and logs": _SETTINGS_AND_LOGS,
        },
    )


def _up_command() -> SettingsCommand:
    return SettingsCommand(
        "up",
        callback=_up,
        params=[
            click.Option(
                ["--brokers"],
                type=Whole(1, MOST_BROKERS),
                metavar="NUMBER",
                default=1,
                show_default=True,
                help="Masters, at most one per core.",
            ),
            click.Option(
                ["--slaves"],
                type=Whole(0, 8),
                metavar="NUMBER",
                default=0,
                show_default=True,
                help="Slaves of each broker.",
            ),
            click.Option(
                ["--no-console"],
                is_flag=True,
                help="Do not run the web console, which is on loopback.",
            ),
            click.Option(
                ["--console-port"],
                type=Whole(0, 65535),
                metavar="PORT",
                default=DEFAULT_PORT,
                show_default=True,
                help="The console's port.",
            ),
            *common_options(),
            *options(all_settings(), hidden=("name-servers", "broker-id")),
        ],
        help=_UP,
        groups={
            "Addresses": ("port", "nameserver-port", "console-port", "no-console", "listen"),
            "Messages": ("brokers", "slaves", "data", "flush"),
            "Settings and logs": ("config", "log-level"),
        },
    )


_BROKER_VERBS: dict[str, str] = {
    "list": "broker_admin",
    "show": "broker_admin",
    "config": "broker_admin",
    "clean": "broker_admin",
    "promote": "broker_roles",
    "demote": "broker_roles",
    "drain": "broker_drain",
    "resume": "broker_drain",
}
_NAMESERVER_VERBS: dict[str, str] = {
    "list": "nameserver_admin",
    "config": "nameserver_admin",
    "kv": "nameserver_admin",
}
"""Each verb and its module, as in `cli.main`. `run` is built in."""


_SETTINGS_AND_LOGS = ("config", "log-level", "json")

_NAMESERVER = """Run a name server.

\b
Examples:
  sparrowmq nameserver
  sparrowmq nameserver --port 9877
  sparrowmq nameserver --config sparrowmq.toml
"""
_BROKER = """Run a broker.

\b
Examples:
  sparrowmq broker --data /var/lib/sparrowmq --name-servers 127.0.0.1:9876
"""
_UP = """\b
Run a name server, brokers and a web console until Ctrl-C. Example:
  sparrowmq up --brokers 2 --slaves 1 --flush sync
"""
