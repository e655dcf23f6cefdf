"""Fields of configuration classes: their meaning, their allowed values, and errors for others.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreConfig:
        deletion_hour: int = setting(4, "Local hour in which files are deleted.", between(0, 23))

        def __post_init__(self) -> None:
            check_fields(self)

The command line derives its flags, help and error messages from these declarations.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Show = Callable[[Any], str]

_MEANING, _ALLOWED = "meaning", "allowed"


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a value must be. Bounds are kept as values, so that they can be shown with a unit."""

    rule: str
    """`must be {} to {}`, with a place for each bound."""
    bounds: tuple[Any, ...] = ()
    why: str = ""
    """The reason for the rule, if a reader would ask for it."""
    accepts: Callable[[Any], bool] = lambda value: True

    def text(self, show: Show = str) -> str:
        """The rule as a sentence; `show` formats a bound."""
        rule = self.rule.format(*map(show, self.bounds)) if self.bounds else self.rule
        return f"{rule}: {self.why}" if self.why else rule


class ConfigError(ValueError):
    """A setting cannot be used, or several do not fit together.

    `fields` are their names, `values` the given values, and `allowed` what they must be. `also`
    are further errors of the same configuration.
    """

    def __init__(
        self,
        names: str | tuple[str, ...],
        value: Any,
        allowed: Allowed | str,
        also: tuple["ConfigError", ...] = (),
    ) -> None:
        self.also = also
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
        super().__init__("; ".join([text, *map(str, also)]))

    @staticmethod
    def of_all(errors: "Sequence[ConfigError]") -> "ConfigError":
        """The first of several errors, with the others in `also`."""
        first, *others = errors
        is_one = len(first.fields) == 1
        names, value = (
            (first.fields[0], first.values[0]) if is_one else (first.fields, first.values)
        )
        return ConfigError(names, value, first.allowed, tuple(others))


# ---- declaring a field


def setting(default: T, meaning: str, allowed: Allowed | None = None) -> T:
    """A field of a configuration class with its default."""
    return field(default=default, metadata={_MEANING: meaning, _ALLOWED: allowed})


def required(meaning: str) -> dict[str, Any]:
    """The metadata of a field without a default: `name: str = field(metadata=required("…"))`."""
    return {_MEANING: meaning}


def between(lowest: float, highest: float, why: str = "") -> Allowed:
    """A number from `lowest` to `highest`, inclusive."""
    return Allowed(
        "must be {} to {}", (lowest, highest), why, lambda value: lowest <= value <= highest
    )


def at_least(lowest: float, why: str = "") -> Allowed:
    """A number of `lowest` or more."""
    return Allowed("must be {} or more", (lowest,), why, lambda value: value >= lowest)


def more_than(bound: float) -> Allowed:
    """A number above `bound`."""
    return Allowed("must be more than {}", (bound,), accepts=lambda value: value > bound)


def not_blank() -> Allowed:
    """A text that is not just spaces."""
    return Allowed("must not be empty", accepts=lambda value: bool(value.strip()))


# ---- reading the declarations


def meaning_of(config: type, name: str) -> str:
    """What a field means and costs, as its class declares it."""
    return next(str(each.metadata[_MEANING]) for each in fields(config) if each.name == name)


def check_fields(config: Any, further: Iterable[ConfigError] = ()) -> None:
    """Check the type and the rule of every field. Raises a ConfigError with all faults.

    Types come first: a text in place of a number, or of the enum member that it names, would cause
    trouble only much later. `further` are faults that a class finds itself. They are looked for (it
    may be a generator) only if every field has the right type, and count only if their fields have
    no other fault.
    """
    # Not `fields(…).type`: that is a string in a module with postponed annotations.
    kinds = get_type_hints(type(config))
    values = {each.name: getattr(config, each.name) for each in fields(config)}
    mistyped = [
        ConfigError(name, value, f"must be {_name_of(kinds[name])}")
        for name, value in values.items()
        if not _is_a(value, kinds[name])
    ]
    unusable = {error.fields[0] for error in mistyped}
    faults = [*mistyped, *_broken_rules(config, values, unusable)]
    if not mistyped:
        named = {name for error in faults for name in error.fields}
        faults += [error for error in further if named.isdisjoint(error.fields)]
    if faults:
        raise ConfigError.of_all(faults)


def _broken_rules(
    config: Any, values: Mapping[str, Any], unusable: set[str]
) -> Iterator[ConfigError]:
    for each in fields(config):
        allowed: Allowed | None = each.metadata.get(_ALLOWED)
        if allowed is None or each.name in unusable:
            continue
        if not allowed.accepts(values[each.name]):
            yield ConfigError(each.name, values[each.name], allowed)


def _is_a(value: object, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_is_a(value, one) for one in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if kind is int:
        return type(value) is int  # True is an int to Python, but not a number to users
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
