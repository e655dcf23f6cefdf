"""Values as people write them: `64MiB`, `500ms`, `72h`, `true`, `a:9876,b:9876`."""

import re
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-zA-Z]*)\s*")
_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _SIZES |= {f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power, _letter: 1024**_power}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_UNITS: dict[str, dict[str, float]] = {"time": {**_SECONDS}, "size": {**_SIZES}, "count": {}}
_EXPECTED = {
    "time": "a time such as 500ms, 2s or 72h",
    "size": "a size such as 4096, 64KiB or 1GiB",
}


_METAVARS = {
    "_host": "HOST",
    "port": "PORT",
    "_dir": "DIRECTORY",
    "_path": "FILE",
    "_name": "NAME",
    "_ratio": "RATIO",
    "_hour": "HOUR",
}


def parse_value(text: str, kind: Any, field: str) -> Any:
    """Parse a value; the suffix of `field` gives the unit. Raises ValueError."""
    kind = _written_kind(kind)
    if kind is bool:
        return _bool(text)
    if kind in (int, float):
        number = _number(text, kind, field)
        if kind is float:
            return float(number)
        if number != int(number):
            raise ValueError(f"must be {_expected(kind, field)}, without a fraction")
        return int(number)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _choice(text, kind)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        parts = [part.strip() for part in re.split("[;,]", text)]
        return tuple(parse_value(part, item, field) for part in parts if part)
    if not text.isprintable():
        raise ValueError("must be a text without control characters")
    if kind is Path:
        if not text.strip():
            raise ValueError("must be a path")
        return Path(text).expanduser()
    return text


def metavar_of(kind: Any, field: str) -> str:
    """The placeholder for a value of that field in usage texts."""
    kind = _written_kind(kind)
    if get_origin(kind) is tuple:
        return f"{'HOST:PORT' if 'server' in field else metavar_of(get_args(kind)[0], field)},…"
    if kind is bool:
        return "true|false"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "|".join(choice.name.lower() for choice in kind)
    for ending, word in _METAVARS.items():
        if field.endswith(ending):
            return word
    if kind in (int, float):
        return {"time": "DURATION", "size": "SIZE"}.get(_measure(field), "NUMBER")
    return "TEXT"


def _written_kind(kind: Any) -> Any:
    """`int` for `int | None`: None is the value of a setting that is not given."""
    if not isinstance(kind, UnionType):
        return kind
    (written,) = (each for each in get_args(kind) if each is not NoneType)
    return written


def _bool(text: str) -> bool:
    value = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(
        text.strip().lower()
    )
    if value is None:
        raise ValueError("must be true or false")
    return value


def _measure(field: str) -> str:
    """What a number in that field measures."""
    if field.endswith(("_s", "_ms")):
        return "time"
    return "size" if "bytes" in field or "size" in field else "count"


def _expected(kind: type, field: str) -> str:
    return _EXPECTED.get(_measure(field), "a whole number" if kind is int else "a number")


def _number(text: str, kind: type, field: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"must be {_expected(kind, field)}")
    digits, unit = found.group(1), found.group(2).lower()
    number = float(digits) if "." in digits else int(digits)
    if not unit:
        return number
    units = _UNITS[_measure(field)]
    if not units:
        raise ValueError(f"must be {_expected(kind, field)} without the unit {unit!r}")
    if unit not in units:
        raise ValueError(f"unit {unit!r}, must be one of {', '.join(filter(None, units))}")
    value = number * units[unit]
    return round(value * 1000, 6) if field.endswith("_ms") else value


def _choice(text: str, kind: type[StrEnum]) -> StrEnum:
    for choice in kind:
        if text.upper() in (choice.value.upper(), choice.name):
            return choice
    raise ValueError(f"must be one of {', '.join(choice.name.lower() for choice in kind)}")


def format_value(value: Any, field: str) -> str:
    """The value in the form in which users write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(format_value(item, field) for item in value) or "(none)"
    if isinstance(value, StrEnum):
        return value.name.lower()
    if field.endswith(("_s", "_ms")) and isinstance(value, int | float):
        return _duration(value if field.endswith("_ms") else value * 1000)
    if isinstance(value, int) and value and value % 1024 == 0:
        for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if value % size == 0 and ("bytes" in field or "size" in field):
                return f"{value // size}{unit}"
    if isinstance(value, Path) and not value.is_absolute():
        return f"./{value}"
    return "(none)" if value is None or value == "" else str(value)


def _duration(value_ms: float) -> str:
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if value_ms and value_ms % size == 0:
            return f"{int(value_ms // size)}{unit}"
    return f"{value_ms:.10g}ms"
