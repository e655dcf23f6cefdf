"""Settings in a TOML file, each with its line number."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparrowmq.cli.settings.apache_conf import setting_of_apache
from sparrowmq.cli.settings.protection import protection_missing
from sparrowmq.cli.settings.settings import (
    FoundSettings,
    Given,
    ServerSetting,
    nearest,
    where_it_belongs,
)

SECTIONS = {"nameserver": "nameserver-", "broker": "", "store": "store-", "limit": "limit-"}
"""For each section, the prefix of its settings."""
ALL_SETTINGS = "all settings: sparrowmq config show"

Key = tuple[str, ...]


def read_toml(path: Path, settings: Iterable[ServerSetting]) -> FoundSettings:
    """The contents of a file, by setting. An unknown key is a problem: a mistyped one would
    silently keep its default. Raises OSError if the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return FoundSettings(problems=(f"{path} is not TOML: {error}",))
    lines = lines_of(text)
    known = [setting.name for setting in settings]
    given: dict[str, Given] = {}
    problems: dict[str, None] = {}  # one for all keys of an unknown section
    for key, value in _flat(table):
        where = f"{path} line {lines.get(key) or lines[key[:-1]]}"
        name, origin = _name_and_origin(key, where)
        if problem := _problem(key, value, name, known, where, given):
            problems[problem] = None
        else:
            given[name] = Given(_text(value), origin)
    return FoundSettings(given, tuple(problems))


def _name_and_origin(key: Key, where: str) -> tuple[str, str]:
    """The setting that a key stands for, and how the key was written."""
    section = key[0] if len(key) > 1 else ""
    if not section:
        return key[0], f"{where}: {key[0]}"
    inside = ".".join(key[1:])
    return SECTIONS.get(section, "") + inside, f"{where}: [{section}] {inside}"


def _problem(
    key: Key, value: Any, name: str, known: list[str], where: str, given: Mapping[str, Given]
) -> str:
    """Why a key cannot be used; empty when it can."""
    section = key[0] if len(key) > 1 else ""
    origin = _name_and_origin(key, where)[1]
    if name not in known and not isinstance(value, dict):
        missing = protection_missing(".".join(key), _text(value))
        missing = missing or protection_missing(key[-1], _text(value))
        if missing:
            return f"{origin} is {_text(value)!r}, but {missing}"
    if section and section not in SECTIONS:
        return _no_section(where, section)
    if name not in known and (elsewhere := where_it_belongs(key[-1])):
        return f"{origin} cannot be set in a file, {elsewhere}"
    if name not in known:
        meant = _meant(section, key[-1], known)
        maybe = f"did you mean {meant}? " if meant else ""
        return f"{origin} is not a setting; {maybe}{ALL_SETTINGS}"
    if name in given:
        return f"{origin} is given twice, also as {given[name].origin}"
    if isinstance(value, dict):
        return f"{origin} is a table, must be a text, number, boolean or list"
    return ""


def _no_section(where: str, section: str) -> str:
    allowed = ", ".join(f"[{name}]" for name in SECTIONS)
    meant = nearest(section, SECTIONS)
    maybe = f"did you mean [{meant}]? " if meant else ""
    return f"{where}: there is no section [{section}]; {maybe}allowed are {allowed}"


def _meant(section: str, key: str, known: list[str]) -> str | None:
    """The setting that was probably meant, as written in that section or in its own."""
    spelled = {_in_section(name)[1]: name for name in reversed(known)}
    apache = setting_of_apache(key)
    if apache is None and key in spelled:
        apache = spelled[key]  # right, in the wrong section
    if apache is not None:
        own, short = _in_section(apache)
        return f"[{own}] {short}" if section and own != section else short if section else apache
    prefix = SECTIONS.get(section, "")
    here = [name.removeprefix(prefix) for name in known if name.startswith(prefix)]
    return nearest(key, here)


def _in_section(name: str) -> tuple[str, str]:
    for section, prefix in SECTIONS.items():
        if prefix and name.startswith(prefix):
            return section, name.removeprefix(prefix)
    return "broker", name


def _flat(table: dict[str, Any], path: Key = ()) -> Iterable[tuple[Key, Any]]:
    """Keys with their sections. An empty section counts if it is unknown."""
    for key, value in table.items():
        at = (*path, key)
        if isinstance(value, dict) and value:
            yield from _flat(value, at)
        elif not isinstance(value, dict):
            yield at, value
        elif path or key not in SECTIONS:
            yield at if path else (*at, ""), value


def lines_of(text: str) -> Mapping[Key, int]:
    """The line in which each key of a TOML text begins.

    The standard library's parser does not report lines. A statement is complete as soon as it
    parses by itself, so each is parsed again, under the section that the last header opened.
    """
    lines: dict[Key, int] = {}
    section: Key = ()
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        first = first if statement else number
        statement += line + "\n"
        try:
            table = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # the statement continues on the next line
        if statement.lstrip().startswith("["):
            section = _header(table)
            lines.setdefault(section, first)
        for key, _ in _flat(table):
            lines.setdefault((*section, *filter(None, key)), first)
        statement = ""
    return lines


def _header(table: Any) -> Key:
    path: list[str] = []
    while isinstance(table, dict | list) and table:
        if isinstance(table, list):  # [[x]]
            table = table[0]
            continue
        ((key, table),) = table.items()
        path.append(key)
    return tuple(path)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
