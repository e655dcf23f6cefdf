"""Whether settings are of the types they declare: a text in place of a number, or of the member of
an enum that it names, would be taken for something else much later."""

import math
from dataclasses import fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args


def wrong_kind(settings: Any) -> str:
    """What the first field of a wrong type is and has to be; empty if all are right.

    `settings` is a dataclass whose fields are numbers, switches, texts, tuples of texts, paths,
    enums or settings themselves.
    """
    for each in fields(settings):
        value, kind = getattr(settings, each.name), each.type
        if not _is_a(value, kind):
            return f"{each.name} is {value!r}, must be {_allowed(kind)}"
    return ""


def _is_a(value: object, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_is_a(value, one) for one in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if kind is int:
        return type(value) is int  # True is an int to Python, and no number of anything
    if kind == tuple[str, ...]:
        return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    return isinstance(value, kind)


_NAMES: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "a tuple of texts",
    NoneType: "None",
}


def _allowed(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(map(_allowed, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"{kind.__name__}.{name}" for name in kind.__members__)
    return _NAMES.get(kind) or f"a {kind.__name__}"
