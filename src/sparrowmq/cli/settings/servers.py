"""The settings of both servers, and their configurations from flags, environment and file."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.settings import environment
from sparrowmq.cli.settings.apache_conf import missing_protections, read_broker_conf
from sparrowmq.cli.settings.protection import EXPOSED, is_exposed, is_wildcard
from sparrowmq.cli.settings.settings import (
    FoundSettings,
    Given,
    ServerSetting,
    SettingError,
    resolve,
    settings_of,
)
from sparrowmq.cli.settings.toml_file import read_toml
from sparrowmq.cluster_address import DEFAULT
from sparrowmq.config_fields import ConfigError
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.store.config import DISK_RATIOS, scaled_ratios

_DEFAULTS: Mapping[str, Any] = {"data": Path("sparrowmq-data"), "name-servers": (DEFAULT,)}
"""Defaults of the commands; a configuration made by a program has none."""
_LISTENERS = ("listen_host", "metrics_listen_host")
MOST_BROKERS = 64
"""Of one `up`."""
SHORT = "short_"
"""Parameter prefix of a flag that leaves out the common prefix of a command's settings."""


@cache
def nameserver_settings() -> list[ServerSetting]:
    """The name server's settings, all beginning with `nameserver-`."""
    return settings_of(NameServerConfig, "nameserver-")


@cache
def broker_settings() -> list[ServerSetting]:
    """The broker's settings, with the defaults of the commands."""
    return [
        replace(setting, default=_DEFAULTS.get(setting.name, setting.default))
        for setting in settings_of(BrokerConfig)
    ]


def all_settings() -> list[ServerSetting]:
    """The settings of both servers."""
    return [*broker_settings(), *nameserver_settings()]


def read_file(path: Path | None, server: str = "broker") -> FoundSettings:
    """The settings in a file, whose name determines its format."""
    if path is None:
        return FoundSettings()
    if path.suffix == ".toml":
        return read_toml(path, all_settings())
    if server == "nameserver":
        warning = (
            f"{path} has no effect: it is read as Apache's broker.conf, which says nothing about a"
            " name server; settings of a name server come from a file that ends in .toml"
        )
        return replace(missing_protections(path), warnings=(warning,))
    return read_broker_conf(path)


def given_settings(
    settings: list[ServerSetting], values: Mapping[str, Any], file: FoundSettings
) -> FoundSettings:
    """The settings from flags, environment and file."""
    flags: dict[str, Given] = {}
    for setting in settings:
        parameter = setting.name.replace("-", "_")
        short = values.get(SHORT + parameter)
        if short is not None:
            flags[setting.name] = Given(short, f"flag --{setting.name.partition('-')[2]}")
        elif values.get(parameter) is not None:
            flags[setting.name] = Given(values[parameter], f"flag --{setting.name}")
    found = resolve(settings, flags=flags, environment=os.environ, file=file.given)
    unprotected = environment.missing_protections(os.environ)
    return FoundSettings(
        {**found.given, **dict(_following_ratios(found.given))},
        (*file.problems, *unprotected, *found.problems),
        file.warnings,
    )


def _following_ratios(given: Mapping[str, Given]) -> Iterator[tuple[str, Given]]:
    """Disk thresholds that were not given, but move with others that were."""
    names = {f"store-{ratio.replace('_', '-')}": ratio for ratio in DISK_RATIOS}
    chosen = {ratio: given[name].value for name, ratio in names.items() if name in given}
    scaled = scaled_ratios(chosen)
    origin = f"follows {' and '.join(name for name in names if name in given)}"
    for name, ratio in names.items():
        if name not in given and scaled[ratio] != scaled_ratios({})[ratio]:
            yield name, Given(scaled[ratio], origin)


def nameserver_config(
    values: Mapping[str, Any], file: FoundSettings, *, insecure: bool = False
) -> NameServerConfig:
    """The name server's configuration. Raises SettingError with every problem."""
    found = _protected(nameserver_settings(), values, file, insecure=insecure)
    config: NameServerConfig = build(NameServerConfig, nameserver_settings(), found)
    return config


def broker_config(
    values: Mapping[str, Any], file: FoundSettings, *, insecure: bool = False
) -> BrokerConfig:
    """The broker's configuration. Raises SettingError with every problem."""
    found = _protected(broker_settings(), values, file, insecure=insecure)
    config: BrokerConfig = build(BrokerConfig, broker_settings(), found)
    origins = tuple(
        (each.place, found.given[each.name].origin)
        for each in broker_settings()
        if each.name in found.given
    )
    return replace(config, data_dir=config.data_dir.resolve(), origins=origins)


def configs_of_both(
    values: Mapping[str, Any], file: FoundSettings, *, insecure: bool
) -> tuple[NameServerConfig, BrokerConfig]:
    """Both configurations. Raises SettingError with the problems of both."""
    try:
        names = nameserver_config(values, file, insecure=insecure)
    except SettingError as error:
        try:
            broker_config(values, file, insecure=insecure)
        except SettingError as another:
            raise SettingError(*dict.fromkeys((*error.problems, *another.problems))) from error
        raise
    return names, broker_config(values, file, insecure=insecure)


def _protected(
    settings: list[ServerSetting], values: Mapping[str, Any], file: FoundSettings, *, insecure: bool
) -> FoundSettings:
    """The given settings; an address that others can reach is a problem unless allowed."""
    found = given_settings(settings, values, file)
    if insecure:
        return found
    problems = []
    for listen in (each for each in settings if each.field in _LISTENERS):
        host = _value(listen, found.given).strip()
        if host and is_exposed(host):  # the configuration class refuses an empty host
            problems.append(f"{_as_written(listen, found.given.get(listen.name))}, {EXPOSED}")
    return replace(found, problems=(*found.problems, *problems))


def address_warnings(values: Mapping[str, Any], file: FoundSettings) -> Iterator[str]:
    """Why clients may be unable to reach a broker at its advertised address.

    Not refused: a proxy or a tunnel may forward an address that this machine does not have, and
    0.0.0.0 is good enough for clients on the same machine.
    """
    given = given_settings(broker_settings(), values, file).given
    by_field = {each.field: each for each in broker_settings()}
    listen, advertise = by_field["listen_host"], by_field["advertise_host"]
    listening, advertised = (_value(each, given).strip() for each in (listen, advertise))
    if advertised and is_exposed(advertised) and not is_exposed(listening):
        yield (
            f"{_as_written(advertise, given[advertise.name])}, but the broker accepts connections"
            f" from this machine only ({_as_written(listen, given.get(listen.name))}): clients on"
            f" other machines cannot reach it; set listen to 0.0.0.0 and start with --insecure,"
            f" unless a proxy or a tunnel forwards {advertised} to this broker"
        )
    elif is_wildcard(advertised or listening):
        written = advertise if advertised else listen
        yield (
            f"{_as_written(written, given[written.name])}, and clients would connect to"
            f" {advertised or listening}, which is their own machine; set advertise to an address"
            " of this machine that they can reach"
        )


# ---- building a configuration


def build(config: type, settings: Iterable[ServerSetting], found: FoundSettings) -> Any:
    """Build a configuration from the given settings. Raises SettingError with every problem."""
    given = {
        **{name: Given(value, "default") for name, value in _DEFAULTS.items()},
        **found.given,
    }
    parts: dict[tuple[str, ...], list[ServerSetting]] = {}
    for setting in settings:
        parts.setdefault(setting.path, []).append(setting)
    own = _values(parts.get((), []), given)
    problems = list(found.problems)
    for path, inside in parts.items():
        if path and (values := _values(inside, given)):
            try:
                own[path[0]] = inside[0].owner(**values)
            except ConfigError as error:
                problems += _texts(error, inside, given, is_whole=not found.problems)
    try:
        made = config(**own)
    except ConfigError as error:
        problems += _texts(error, parts.get((), []), given, is_whole=not found.problems)
    if problems:
        raise SettingError(*dict.fromkeys(problems))
    return made


def _texts(
    error: ConfigError,
    settings: list[ServerSetting],
    given: Mapping[str, Given],
    *,
    is_whole: bool,
) -> list[str]:
    """All faults of a configuration. Contradictions are left out if some settings could not be
    read: one of those may resolve the contradiction."""
    faults = [each for each in (error, *error.also) if is_whole or len(each.fields) == 1]
    return [in_words_of_the_user(each, settings, given) for each in faults]


def _values(settings: list[ServerSetting], given: Mapping[str, Given]) -> dict[str, Any]:
    return {each.field: given[each.name].value for each in settings if each.name in given}


def in_words_of_the_user(
    error: ConfigError, settings: Iterable[ServerSetting], given: Mapping[str, Given]
) -> str:
    """An error that names what the user wrote, and where, instead of fields.

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
    """The settings as written, then those that contradict each other, in the rule's order."""
    written = [_as_written(each, given[each.name]) for each in concerned if each.name in given]
    *first, last = (f"{each.name} ({each.show(_value(each, given))})" for each in concerned)
    return f"{', '.join(written)}; {', '.join(first)} and {last} {rule}"


def _value(setting: ServerSetting, given: Mapping[str, Given]) -> Any:
    return given[setting.name].value if setting.name in given else setting.default


def _as_written(setting: ServerSetting, given: Given | None) -> str:
    """The setting as it was written, and its value; if that was converted, the result too."""
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
