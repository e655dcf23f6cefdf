"""Kinds of values that options of several commands take, with errors that say what is allowed."""

from collections.abc import Mapping
from typing import Any

import click

from sparrowmq.cli.values import parse_value
from sparrowmq.protocol.perm import PERM_READ, PERM_READ_WRITE, PERM_WRITE


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
    """How long to wait for something: a time that is more than 0."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The text as seconds."""
        wait_s = super().convert(value, param, ctx)
        if wait_s <= 0:
            self.fail(f"{value!r}: must be more than 0, such as 500ms, 30s or 1h", param, ctx)
        return wait_s


class Permission(click.ParamType[int]):
    """What clients may do with a topic: a number of Apache's, or letters."""

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
