"""Settings: declared once, as fields of the configuration classes; given by flag, variable or file.

    flag > environment > file > default

A field `flush_interval_s` is the flag `--flush-interval`, the variable SPARROWMQ_FLUSH_INTERVAL and
the TOML key `flush-interval`; units follow the value (`500ms`, `64MiB`, `72h`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from sparrowmq.cli.units import format_value, parse_value

UNIT_ENDINGS = ("_s", "_ms", "_bytes")


class SettingError(ValueError):
    """A setting cannot be used; the text names it, where it came from and what is allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one configuration class."""

    name: str
    """As a flag without dashes: `flush-interval`."""
    owner: type
    field: str
    path: tuple[str, ...]
    """Names of the nested configurations it lies in."""
    kind: Any
    default: Any

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "SPARROWMQ_" + self.name.upper().replace("-", "_")

    def parse(self, text: str, origin: str) -> Any:
        """The value in a text. Raises SettingError."""
        try:
            return parse_value(text, self.kind, self.field)
        except ValueError as error:
            raise SettingError(f"{self.name} is {text!r} ({origin}), {error}") from error

    def show(self, value: Any) -> str:
        """The value as one would write it."""
        return format_value(value, self.field)


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it came from."""

    value: Any
    origin: str


# Shorter names for what people type most.
_SHORT = {
    "data_dir": "data",
    "listen_host": "listen",
    "listen_port": "port",
    "advertise_host": "advertise",
}
# Set by the program itself, never by people.
_HIDDEN = {"store_host"}


def settings_of(config: type, prefix: str = "", path: tuple[str, ...] = ()) -> list[Setting]:
    """All settings of a configuration class; nested ones get their field's name as a prefix."""
    hints = get_type_hints(config)
    found: list[Setting] = []
    for each in fields(config):
        kind = hints[each.name]
        if is_dataclass(kind) and isinstance(kind, type):
            nested = each.name.removesuffix("s") if each.name == "limits" else each.name
            found += settings_of(kind, f"{prefix}{nested}-", (*path, each.name))
        elif each.name not in _HIDDEN:
            default = None if each.default is MISSING else each.default
            found.append(
                Setting(prefix + _plain_name(each.name), config, each.name, path, kind, default)
            )
    return found


def _plain_name(field: str) -> str:
    name = _SHORT.get(field, field)
    for ending in UNIT_ENDINGS:
        name = name.removesuffix(ending)
    return name.replace("_", "-")


def resolve(
    settings: Iterable[Setting],
    *,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    file: Mapping[str, Given],
) -> dict[str, Given]:
    """The value of each setting that somebody gave, by name. Raises SettingError."""
    given: dict[str, Given] = {}
    for setting in settings:
        flag = flags.get(setting.name)
        variable = environment.get(setting.variable)
        if flag is not None:
            origin = f"flag --{setting.name}"
            given[setting.name] = Given(setting.parse(flag, origin), origin)
        elif variable is not None:
            origin = f"environment {setting.variable}"
            given[setting.name] = Given(setting.parse(variable, origin), origin)
        elif setting.name in file:
            found = file[setting.name]
            value = setting.parse(found.value, found.origin)
            given[setting.name] = Given(value, found.origin)
    return given


def build(config: type, settings: Iterable[Setting], given: Mapping[str, Given]) -> Any:
    """A configuration from what was given. Raises SettingError with the class's own words."""
    nested: dict[str, tuple[type, dict[str, Any]]] = {}
    own: dict[str, Any] = {}
    for setting in settings:
        if setting.name not in given:
            continue
        value = given[setting.name].value
        if setting.path:
            nested.setdefault(setting.path[0], (setting.owner, {}))[1][setting.field] = value
        else:
            own[setting.field] = value
    try:
        for name, (kind, values) in nested.items():
            own[name] = kind(**values)
        return config(**own)
    except ValueError as error:
        origins = ", ".join(sorted({each.origin for each in given.values()}))
        raise SettingError(f"{error} (settings from {origins or 'defaults'})") from error


def read_toml(path: Path, sections: Mapping[str, str]) -> dict[str, Given]:
    """Settings in a TOML file. `sections` maps a section to the prefix of its settings.

    Raises SettingError for a file that is none, OSError where it cannot be read.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not TOML: {error}") from error
    found: dict[str, Given] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            if key not in sections:
                known = ", ".join(f"[{name}]" for name in sections)
                raise SettingError(f"{path} has a section [{key}], allowed are {known}")
            for name, inner in value.items():
                found[sections[key] + name] = Given(_text(inner), f"{path} [{key}] {name}")
        else:
            found[key] = Given(_text(value), f"{path} {key}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def check_known(file: Mapping[str, Given], settings: Iterable[Setting]) -> None:
    """Refuse settings nobody knows: a mistyped one would silently keep its default."""
    known = {setting.name for setting in settings}
    for name, given in file.items():
        if name not in known:
            raise SettingError(f"there is no setting {name} ({given.origin}); see: config show")
