"""Checks of arguments that people get wrong. Each raises a ValueError that says what was given and
what is allowed."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from os import PathLike
from typing import Any, TypeVar

from sparrowmq.protocol.message import MessageQueue

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

E = TypeVar("E", bound=Enum)


def check_number(name: str, value: object, lowest: float, highest: float = math.inf) -> None:
    """A number in a range; NaN is in none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and lowest <= value <= highest:  # type: ignore[operator]  # a number by now
        return
    allowed = f"{lowest} or more" if highest == math.inf else f"{lowest} to {highest}"
    raise ValueError(f"{name} is {value!r}, must be {'' if is_number else 'a number, '}{allowed}")


def check_whole(name: str, value: object, lowest: int, highest: int = MAX_INT) -> None:
    """A whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, must be a whole number")
    if value < lowest:
        check_number(name, value, lowest)
    check_number(name, value, lowest, highest)


def check_time(name: str, seconds: object) -> None:
    """A positive number of seconds."""
    if not isinstance(seconds, int | float):
        raise ValueError(f"{name} is {seconds!r}, must be a number of seconds, more than 0")
    if not seconds > 0:
        raise ValueError(f"{name} is {seconds!r}, must be more than 0")


def check_flags(**flags: object) -> None:
    """Each is True or False: any text, even "no", would count as True."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}, must be True or False")


def check_kind(name: str, value: object, kind: type) -> None:
    """A value of a type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r}, must be a {kind.__name__}")


def member_of(name: str, value: object, kind: type[E]) -> E:
    """The member of an enum, which may be given as its name, such as "FIRST_OFFSET"."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    allowed = f"must be one of {', '.join(kind.__members__)}"
    near = _near(value.upper(), kind.__members__) if isinstance(value, str) else None
    raise ValueError(
        f"{name} is {value!r}, {allowed}" + (f"; did you mean {near}?" if near else "")
    )


def _near(given: str, names: Iterable[str]) -> str | None:
    """The name that begins as the given one does, else a similar one."""
    begun = [each for each in names if given and each.startswith(given)]
    return next(iter(begun or get_close_matches(given, names, 1)), None)


def check_function(name: str, value: object) -> None:
    """A callable."""
    if not callable(value):
        raise ValueError(f"{name} is {value!r}, must be a function")


def check_names(name: str, given: object) -> None:
    """Several names: a single string would be taken for its letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"{name} is {given!r}, must be a list of names")


def check_path(name: str, given: object) -> None:
    """A path, as a text or a Path."""
    if not isinstance(given, str | PathLike):
        raise ValueError(f"{name} is {given!r}, must be a path")


def check_queues(given: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Several queues: a single one is easily given without its list."""
    anything: object = given
    if isinstance(anything, str) or not isinstance(anything, Iterable):
        raise ValueError(f"queues is {given!r}, must be a list of queues, such as [queue]")
    queues = list(given)
    for queue in queues:
        check_kind("a queue", queue, MessageQueue)
    return queues


def check_offsets(offsets: Mapping[MessageQueue, Any]) -> None:
    """Offsets that a broker can store."""
    check_kind("offsets", offsets, Mapping)
    for queue, offset in offsets.items():
        check_kind("a queue", queue, MessageQueue)
        check_whole(f"the offset of {queue}", offset, 0, MAX_LONG)


def to_ms(name: str, when: datetime | int) -> int:
    """Milliseconds since 1970. Raises ValueError for anything but that or an aware datetime."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError(f"{name} is {when!r}, which has no time zone: add tzinfo=UTC")
        return round(when.timestamp() * 1000)
    given: object = when
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ValueError(f"{name} is {when!r}, must be a datetime or milliseconds since 1970")
    return given
