"""Value types shared by options of several commands, with errors that say what is allowed."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from sparrowmq.cli.values import parse_value
from sparrowmq.clock import system_clock
from sparrowmq.protocol.perm import PERM_READ, PERM_READ_WRITE, PERM_WRITE


class Whole(click.IntRange):
    """A whole number within bounds, with an error for people."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if isinstance(value, str) and not _WHOLE.fullmatch(value.strip()):
            self.fail(f"{value!r} is not a whole number{_range_of(self)}", param, ctx)
        return super().convert(value, param, ctx)


class Decimal(click.FloatRange):
    """A number within bounds, with an error for people."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number{_range_of(self)}", param, ctx)
        return super().convert(value, param, ctx)


_WHOLE = re.compile(r"[+-]?[0-9]+")


def _range_of(bounds: click.IntRange | click.FloatRange) -> str:
    match bounds.min, bounds.max:
        case None, None:
            return ""
        case least, None:
            return (
                f", must be more than {least}" if bounds.min_open else f", must be {least} or more"
            )
        case None, most:
            return f", must be at most {most}"
        case least, most:
            return f", must be from {least} to {most}"


class Duration(click.ParamType[float]):
    """Seconds: `10s`, `500ms`, `1h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The text as seconds."""
        if isinstance(value, float | int):
            return float(value)
        try:
            return float(parse_value(value, float, "interval_s"))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Wait(Duration):
    """How long to wait for something: more than 0."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The text as seconds."""
        wait_s = super().convert(value, param, ctx)
        if wait_s <= 0:
            self.fail(f"{value!r}: must be more than 0, such as 500ms, 30s or 1h", param, ctx)
        return wait_s


class Moment(click.ParamType[datetime]):
    """A time: `2026-11-15`, `2026-11-15T13:30`, with a zone or in UTC; `-30m` ago; `now`."""

    name = "time"

    def __init__(self, *, is_relative: bool = True) -> None:
        """`is_relative=False` is for jobs that a second run recognises by their times: with a
        relative time it would be a different job."""
        self._now = system_clock if is_relative else None

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """The text as a time with its zone."""
        if isinstance(value, datetime):
            return value
        try:
            return read_moment(value, self._now and self._now())
        except (ValueError, OverflowError):
            more = ", -30m or now" if self._now else ""
            meant = f"-{value} for so long ago, " if self._now and _is_duration(value) else ""
            allowed = f"write {meant}2026-11-15 or 2026-11-15T13:30, in UTC or with a zone{more}"
            self.fail(f"{value!r} is not a time; {allowed}", param, ctx)


def _is_duration(text: str) -> bool:
    try:
        return not text[-1:].isdigit() and parse_value(text, float, "ago_s") > 0
    except ValueError:
        return False


def read_moment(text: str, now_ms: int | None) -> datetime:
    """A time as people write it; one relative to now if that is given. Raises ValueError."""
    if now_ms is not None and (text == "now" or text.startswith("-")):
        if text[-1:].isdigit():
            raise ValueError("a time ago needs its unit")  # -5 may be meant as five messages
        ago_s = 0 if text == "now" else parse_value(text[1:], float, "ago_s")
        return datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(seconds=ago_s)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


class Permission(click.ParamType[int]):
    """What clients may do with a topic: one of Apache's numbers, or letters."""

    name = "permission"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        known = _PERMISSIONS.get(str(value).lower())
        if known is None:
            allowed = "2 or w (write), 4 or r (read), 6 or rw (both)"
            self.fail(f"{value!r} is not a permission, must be {allowed}", param, ctx)
        return known


_PERMISSIONS: Mapping[str, int] = {
    "2": PERM_WRITE,
    "w": PERM_WRITE,
    "4": PERM_READ,
    "r": PERM_READ,
    "6": PERM_READ_WRITE,
    "rw": PERM_READ_WRITE,
    "wr": PERM_READ_WRITE,
}


class Percentage(click.ParamType[float]):
    """A part of a whole: `85%`, or `85`."""

    name = "percentage"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The part, from 0 to 1."""
        if isinstance(value, float):
            return value
        try:
            number = float(str(value).removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 1 <= number <= 100:
            self.fail(f"{value!r} is not a percentage from 1 to 100, such as 85%", param, ctx)
        return number / 100
