"""The settings of both servers, and their configurations from flags, environment and file."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.apache_conf import read_broker_conf
from sparrowmq.cli.remarks import tell_warning
from sparrowmq.cli.setting_build import build
from sparrowmq.cli.settings import Given, Setting, resolve, settings_of
from sparrowmq.cli.toml_file import read_toml
from sparrowmq.nameserver.config import NameServerConfig

DEFAULT_DATA = Path("sparrowmq-data")
SHORT = "short_"
"""Before the parameter of a flag that leaves out what all settings of a command begin with."""


@cache
def nameserver_settings() -> list[Setting]:
    """The name server's, all beginning with `nameserver-`."""
    return settings_of(NameServerConfig, "nameserver-")


@cache
def broker_settings() -> list[Setting]:
    """The broker's."""
    return settings_of(BrokerConfig)


def all_settings() -> list[Setting]:
    """Of both."""
    return [*broker_settings(), *nameserver_settings()]


def read_file(
    path: Path | None, server: str = "broker", warn: Callable[[str], None] = tell_warning
) -> dict[str, Given]:
    """The settings in a file; its name tells which kind it is. Raises SettingError."""
    if path is None:
        return {}
    if path.suffix == ".toml":
        return read_toml(path, all_settings())
    if server == "nameserver":
        warn(
            f"{path} has no effect: it is read as Apache's broker.conf, which says nothing about a"
            " name server; settings of a name server come from a file that ends in .toml"
        )
        return {}
    return read_broker_conf(path, warn)


def given_settings(
    settings: list[Setting], values: Mapping[str, Any], file: Mapping[str, Given]
) -> dict[str, Given]:
    """What flags, environment and file say. Raises SettingError."""
    flags: dict[str, Given] = {}
    for setting in settings:
        parameter = setting.name.replace("-", "_")
        short = values.get(SHORT + parameter)
        if short is not None:
            flags[setting.name] = Given(short, f"flag --{setting.name.partition('-')[2]}")
        elif values.get(parameter) is not None:
            flags[setting.name] = Given(values[parameter], f"flag --{setting.name}")
    return resolve(settings, flags=flags, environment=os.environ, file=file)


def nameserver_config(values: Mapping[str, Any], file: Mapping[str, Given]) -> NameServerConfig:
    """The name server's configuration. Raises SettingError."""
    settings = nameserver_settings()
    config: NameServerConfig = build(
        NameServerConfig, settings, given_settings(settings, values, file)
    )
    return config


def broker_config(
    values: Mapping[str, Any],
    file: Mapping[str, Given],
    *,
    extra: Mapping[str, Given] | None = None,
) -> BrokerConfig:
    """The broker's configuration. `extra` fills what nobody gave. Raises SettingError."""
    settings = broker_settings()
    given = {
        "data": Given(DEFAULT_DATA, "default"),
        **(extra or {}),
        **given_settings(settings, values, file),
    }
    config: BrokerConfig = build(BrokerConfig, settings, given)
    return replace(config, data_dir=config.data_dir.resolve())
