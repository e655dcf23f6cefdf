"""Fields of configuration classes: what each means, what it may be, and the error for the rest.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreConfig:
        deletion_hour: int = setting(4, "Local hour in which files are deleted.", between(0, 23))

        def __post_init__(self) -> None:
            check_fields(self)

The command line makes its flags, its help and its error messages from these declarations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Show = Callable[[Any], str]

_MEANING, _ALLOWED = "meaning", "allowed"


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a value must be. The bounds are values too, so that they can be shown with a unit."""

    rule: str
    """`must be {} to {}`, with a place for each bound."""
    bounds: tuple[Any, ...] = ()
    why: str = ""
    """The reason for the rule where a reader would ask for it."""
    accepts: Callable[[Any], bool] = lambda value: True

    def text(self, show: Show = str) -> str:
        """The rule as a sentence; `show` writes a bound."""
        rule = self.rule.format(*map(show, self.bounds)) if self.bounds else self.rule
        return f"{rule}: {self.why}" if self.why else rule


class ConfigError(ValueError):
    """A setting cannot be used, or several do not fit together.

    `fields` are their names, `values` what they were given, and `allowed` what they must be.
    """

    def __init__(self, names: str | tuple[str, ...], value: Any, allowed: Allowed | str) -> None:
        self.allowed = Allowed(allowed) if isinstance(allowed, str) else allowed
        self.fields: tuple[str, ...]
        self.values: tuple[Any, ...]
        if isinstance(names, str):
            self.fields, self.values = (names,), (value,)
            text = f"{names} is {value!r}, {self.allowed.text()}"
        else:
            self.fields, self.values = names, tuple(value)
            *first, last = names
            values = ", ".join(map(repr, self.values))
            text = f"{', '.join(first)} and {last} {self.allowed.text()}, are {values}"
        super().__init__(text)


# ---- declaring a field


def setting(default: T, meaning: str, allowed: Allowed | None = None) -> T:
    """A field of a configuration class with its default."""
    return field(default=default, metadata={_MEANING: meaning, _ALLOWED: allowed})


def required(meaning: str) -> dict[str, Any]:
    """The metadata of a field without a default: `name: str = field(metadata=required("…"))`."""
    return {_MEANING: meaning}


def between(lowest: float, highest: float, why: str = "") -> Allowed:
    """A number from `lowest` to `highest`, both included."""
    return Allowed(
        "must be {} to {}", (lowest, highest), why, lambda value: lowest <= value <= highest
    )


def at_least(lowest: float) -> Allowed:
    """A number of `lowest` or more."""
    return Allowed("must be {} or more", (lowest,), accepts=lambda value: value >= lowest)


def more_than(bound: float) -> Allowed:
    """A number above `bound`."""
    return Allowed("must be more than {}", (bound,), accepts=lambda value: value > bound)


def exactly(only: Any, why: str) -> Allowed:
    """One value for now."""
    return Allowed("must be {}", (only,), why, lambda value: value == only)


def not_blank() -> Allowed:
    """A text with more than spaces in it."""
    return Allowed("must not be empty", accepts=lambda value: bool(value.strip()))


# ---- reading the declarations


def meaning_of(config: type, name: str) -> str:
    """What a field means and costs, in the words of its class."""
    return next(str(each.metadata[_MEANING]) for each in fields(config) if each.name == name)


def check_fields(config: Any) -> None:
    """Check the type and then the rule of every field. Raises ConfigError for the first bad one.

    Types come first: a text in place of a number, or of the member of an enum that it names, would
    be taken for something else much later.
    """
    # Not `fields(…).type`: that is a text in a module that postpones its annotations.
    kinds = get_type_hints(type(config))
    for each in fields(config):
        value = getattr(config, each.name)
        if not _is_a(value, kinds[each.name]):
            raise ConfigError(each.name, value, f"must be {_name_of(kinds[each.name])}")
    for each in fields(config):
        allowed: Allowed | None = each.metadata.get(_ALLOWED)
        value = getattr(config, each.name)
        if allowed is not None and not allowed.accepts(value):
            raise ConfigError(each.name, value, allowed)


def _is_a(value: object, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_is_a(value, one) for one in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if kind is int:
        return type(value) is int  # True is an int to Python, and no number of anything
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return isinstance(value, tuple) and all(_is_a(one, item) for one in value)
    return isinstance(value, kind)


_NAMES: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "a tuple of texts",
    tuple[int, ...]: "a tuple of whole numbers",
    NoneType: "None",
}


def _name_of(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(map(_name_of, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"{kind.__name__}.{name}" for name in kind.__members__)
    return _NAMES.get(kind) or f"a {kind.__name__}"
