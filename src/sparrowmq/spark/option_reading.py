"""Reading options: names in any case, an unknown one refused with what is allowed."""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from sparrowmq.spark.errors import OptionError

Known: TypeAlias = Mapping[str, tuple[str, Callable[[str], Any]]]
"""By the option's name: the field it sets, and what reads its text or raises ValueError."""


def read_options(
    options: Mapping[str, str], known: Known, what: str, of_spark: Collection[str] = ()
) -> dict[str, Any]:
    """The fields that the options of `what` set, without those in lower case that are Spark's.

    Raises OptionError that names the option and what is allowed.
    """
    names = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    for given, text in options.items():
        if given.lower() in of_spark:
            continue
        name = names.get(given.lower())
        if name is None:
            raise OptionError(given, _unknown(given.lower(), names, what))
        field, read = known[name]
        try:
            values[field] = read(text.strip())
        except ValueError as error:
            raise OptionError(name, f"{error}, not {text!r}") from error
    return values


def _unknown(given: str, names: Mapping[str, str], what: str) -> str:
    close = get_close_matches(given, names, 1)
    hint = f"did you mean {names[close[0]]}? " if close else ""
    return f"unknown to {what}; {hint}allowed are {', '.join(names.values())}"
