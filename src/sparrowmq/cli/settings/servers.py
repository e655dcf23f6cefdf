"""The settings of both servers, and their configurations from flags, environment and file."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.logs import Warn, print_warning
from sparrowmq.cli.settings.apache_conf import read_broker_conf
from sparrowmq.cli.settings.settings import (
    Given,
    ServerSetting,
    SettingError,
    resolve,
    settings_of,
)
from sparrowmq.cli.settings.toml_file import read_toml
from sparrowmq.config_fields import ConfigError
from sparrowmq.nameserver.config import NameServerConfig

DEFAULT_DATA = Path("sparrowmq-data")
SHORT = "short_"
"""Before the parameter of a flag that leaves out what all settings of a command begin with."""


@cache
def nameserver_settings() -> list[ServerSetting]:
    """The name server's, all beginning with `nameserver-`."""
    return settings_of(NameServerConfig, "nameserver-")


@cache
def broker_settings() -> list[ServerSetting]:
    """The broker's."""
    return settings_of(BrokerConfig)


def all_settings() -> list[ServerSetting]:
    """Of both."""
    return [*broker_settings(), *nameserver_settings()]


def read_file(
    path: Path | None, server: str = "broker", warn: Warn = print_warning
) -> dict[str, Given]:
    """The settings in a file; its name says which kind it is. Raises SettingError."""
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
    settings: list[ServerSetting], values: Mapping[str, Any], file: Mapping[str, Given]
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
    """The broker's configuration. `extra` replaces defaults. Raises SettingError."""
    settings = broker_settings()
    given = {
        "data": Given(DEFAULT_DATA, "default"),
        **(extra or {}),
        **given_settings(settings, values, file),
    }
    config: BrokerConfig = build(BrokerConfig, settings, given)
    return replace(config, data_dir=config.data_dir.resolve())


# ---- building a configuration


def build(config: type, settings: Iterable[ServerSetting], given: Mapping[str, Given]) -> Any:
    """A configuration from what was given. Raises SettingError."""
    parts: dict[tuple[str, ...], list[ServerSetting]] = {}
    for setting in settings:
        parts.setdefault(setting.path, []).append(setting)
    own = _values(parts.get((), []), given)
    for path, inside in parts.items():
        if path and (values := _values(inside, given)):
            own[path[0]] = _make(inside[0].owner, values, inside, given)
    return _make(config, own, parts.get((), []), given)


def _values(settings: list[ServerSetting], given: Mapping[str, Given]) -> dict[str, Any]:
    return {each.field: given[each.name].value for each in settings if each.name in given}


def _make(
    kind: type, values: dict[str, Any], settings: list[ServerSetting], given: Mapping[str, Given]
) -> Any:
    try:
        return kind(**values)
    except ConfigError as error:
        raise SettingError(in_words_of_the_user(error, settings, given)) from error


def in_words_of_the_user(
    error: ConfigError, settings: Iterable[ServerSetting], given: Mapping[str, Given]
) -> str:
    """A refusal that names what was written and where instead of fields.

    A class refuses `retention_ms`, which is 0; the user wrote `--store-retention 0h`, a variable or
    line 4 of a file.
    """
    by_field = {setting.field: setting for setting in settings}
    concerned = [by_field[name] for name in error.fields]
    if len(concerned) > 1:
        return _of_several(concerned, given, error.allowed.text())
    (setting,) = concerned
    written = _as_written(setting, given.get(setting.name))
    return f"{written}, {error.allowed.text(lambda bound: _bound(setting, bound))}"


def _of_several(concerned: list[ServerSetting], given: Mapping[str, Given], rule: str) -> str:
    """What was written, then all that do not fit together, in the order that the rule means."""
    written = [_as_written(each, given[each.name]) for each in concerned if each.name in given]
    *first, last = (f"{each.name} ({each.show(_value(each, given))})" for each in concerned)
    return f"{', '.join(written)}; {', '.join(first)} and {last} {rule}"


def _value(setting: ServerSetting, given: Mapping[str, Given]) -> Any:
    return given[setting.name].value if setting.name in given else setting.default


def _as_written(setting: ServerSetting, given: Given | None) -> str:
    """The setting as it was written, and its value; where that was converted, the result too."""
    if given is None:
        return f"{setting.name} is {setting.show(setting.default)} (default)"
    if given.written is None:
        return f"{setting.name} is {setting.show(given.value)} ({given.origin})"
    key = given.origin.rpartition(" ")[2].lstrip("-")
    is_ours = setting.name.endswith(key) or setting.variable == key
    shown = f"{setting.name} {setting.show(given.value)}"
    return f"{given.origin} is {given.written!r}" + ("" if is_ours else f" (here {shown})")


def _bound(setting: ServerSetting, bound: Any) -> str:
    """`1ms` for the 1 of a time in milliseconds; 0 needs no unit."""
    return setting.show(bound) if bound else str(bound)
