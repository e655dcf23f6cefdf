"""Settings: declared once, as fields of the configuration classes; given by flag, variable or file.

    flag > environment > file > default

A field `flush_interval_s` is the flag `--flush-interval`, the variable SPARROWMQ_FLUSH_INTERVAL and
the TOML key `flush-interval`; units follow the value (`500ms`, `64MiB`, `72h`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_type_hints

from sparrowmq.cli.values import format_value, parse_value
from sparrowmq.config_fields import meaning_of

PREFIX = "SPARROWMQ_"
LINK = re.compile("(tcp|udp|sctp)://")
"""How the value of a variable …_PORT begins that stands for a service instead of a port."""
UNIT_ENDINGS = ("_s", "_ms", "_bytes")
_SIMILAR = 0.7


class SettingError(ValueError):
    """Settings cannot be used. Each of the `problems` quotes one as written, and says where it was
    and what is allowed."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        lines = (f"{len(problems)} settings cannot be used:", *problems)
        super().__init__("\n  ".join(lines) if len(problems) > 1 else problems[0])


@dataclass(frozen=True, slots=True)
class ServerSetting:
    """One setting of one configuration class."""

    name: str
    """The flag's name without the leading dashes: `flush-interval`."""
    owner: type
    field: str
    path: tuple[str, ...]
    """Names of the nested configurations that contain it."""
    kind: Any
    default: Any

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return PREFIX + self.name.upper().replace("-", "_")

    @property
    def place(self) -> str:
        """Its field and those that contain it: `store.retention_ms`."""
        return ".".join((*self.path, self.field))

    @property
    def meaning(self) -> str:
        """What it means and costs, from the field's docstring."""
        return meaning_of(self.owner, self.field)

    def parse(self, text: str, origin: str, written: str | None = None) -> Any:
        """Parse a value; errors quote `written`, the original text. Raises SettingError."""
        try:
            return parse_value(text, self.kind, self.field)
        except ValueError as error:
            shown = text if written is None else written
            raise SettingError(f"{origin} is {shown!r}, {error}") from error

    def show(self, value: Any) -> str:
        """The value in the form in which users write it."""
        return format_value(value, self.field)

    def value_in(self, config: Any) -> Any:
        """Its value in a configuration."""
        for part in self.path:
            config = getattr(config, part)
        return getattr(config, self.field)


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it came from."""

    value: Any
    origin: str
    """As it was written and where: `flag --port`, `x.toml line 3: [broker] port`."""
    written: str | None = None
    """The text as it was written, if the value was parsed from one."""


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """What was read from a file or from all sources: settings by name, and problems."""

    given: Mapping[str, Given] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Why servers must not start. `given` still has what could be read, so that one run reports
    every problem."""
    warnings: tuple[str, ...] = ()
    """Warnings about what has no effect."""


# Shorter names for the settings that people type most.
_SHORT = {
    "data_dir": "data",
    "listen_host": "listen",
    "metrics_listen_host": "metrics-listen",
    "listen_port": "port",
    "advertise_host": "advertise",
}
# Set by the program itself, never by people.
_HIDDEN = {"store_host", "is_shown_by_owner", "origins"}


def settings_of(config: type, prefix: str = "", path: tuple[str, ...] = ()) -> list[ServerSetting]:
    """All settings of a configuration class; nested ones get their field's name as a prefix."""
    hints = get_type_hints(config)
    found: list[ServerSetting] = []
    for each in fields(config):
        kind = hints[each.name]
        if is_dataclass(kind) and isinstance(kind, type):
            nested = each.name.removesuffix("s") if each.name == "limits" else each.name
            found += settings_of(kind, f"{prefix}{nested}-", (*path, each.name))
        elif each.name not in _HIDDEN:
            default = None if each.default is MISSING else each.default
            found.append(
                ServerSetting(
                    prefix + _plain_name(each.name), config, each.name, path, kind, default
                )
            )
    return found


def _plain_name(field: str) -> str:
    name = _SHORT.get(field, field)
    for ending in UNIT_ENDINGS:
        name = name.removesuffix(ending)
    return name.replace("_", "-")


def resolve(
    settings: Iterable[ServerSetting],
    *,
    flags: Mapping[str, Given],
    environment: Mapping[str, str],
    file: Mapping[str, Given],
) -> FoundSettings:
    """The values of the given settings, and the problems of those that cannot be read."""
    given: dict[str, Given] = {}
    problems: list[str] = []
    for setting in settings:
        try:
            found = _first_given(setting, flags, environment, file)
            if found is not None:
                written = found.value if found.written is None else found.written
                value = setting.parse(found.value, found.origin, written)
                given[setting.name] = Given(value, found.origin, written)
        except SettingError as error:
            problems += error.problems
    return FoundSettings(given, tuple(problems))


def _first_given(
    setting: ServerSetting,
    flags: Mapping[str, Given],
    environment: Mapping[str, str],
    file: Mapping[str, Given],
) -> Given | None:
    variable = environment.get(setting.variable)
    found = flags.get(setting.name)
    if found is None and variable is not None:
        found = _from_variable(setting, variable)
    return file.get(setting.name) if found is None else found


def _from_variable(setting: ServerSetting, text: str) -> Given:
    origin = f"environment variable {setting.variable}"
    if LINK.match(text) and setting.variable.endswith("_PORT"):
        service = setting.variable.removesuffix("_PORT").lower().replace("_", "-")
        raise SettingError(
            f"{origin} is {text!r}, as Kubernetes sets it for a Service named {service}, and must"
            " be a port; set `enableServiceLinks: false` in the pod, or rename the Service"
        )
    return Given(text, origin)


_FLAGS = {
    "loglevel": f"start the server with --log-level, or set {PREFIX}LOG_LEVEL",
    "json": "start the server with --json",
    "insecure": "start the server with --insecure",
    "config": f"start the server with --config, or set {PREFIX}CONFIG",
    "brokers": "start them with: sparrowmq up --brokers NUMBER",
}


def where_it_belongs(word: str) -> str:
    """What to do about the name of a flag that is not a setting; empty for any other word."""
    plain = re.sub("[._-]", "", word).lower()
    remedy = _FLAGS.get(plain)
    return f"it is a flag of the command, not a setting: {remedy}" if remedy else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` may be a misspelling of."""
    found = get_close_matches(word, known, n=1, cutoff=_SIMILAR)
    return found[0] if found else None
