"""Delay levels: `1s 5s 10s …`, the table that DELAY and retries use."""

import re
from collections.abc import Sequence

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

MAX_DELAY_LEVEL = 18
"""RocketMQ's levels end with 2 h."""

MAX_TIMER_DELAY_MS = 3 * 24 * 3_600_000
"""Delivery times further ahead than 3 days are refused."""

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of level 1, 2, …; raises ValueError naming the part it cannot read."""
    levels = tuple(map(_parse_level, text.split()))
    if not levels:
        raise ValueError("no delay level, expected something like '1s 5s 1m 2h'")
    return levels


def _parse_level(text: str) -> int:
    found = _LEVEL.fullmatch(text)
    if found is None:
        raise ValueError(f"delay level {text!r} is not a number followed by s, m, h or d")
    return int(found[1]) * _UNIT_MS[found[2]]


def format_delay_levels(levels_ms: Sequence[int]) -> str:
    """The levels as text, each in the largest unit without a fraction. There is no unit below a
    second, so fractions of a second are rounded up."""
    return " ".join(map(_format_level, levels_ms))


def _format_level(level_ms: int) -> str:
    for name in "hms":
        count, rest = divmod(level_ms, _UNIT_MS[name])
        if not rest:
            return f"{count}{name}"
    return f"{count + 1}s"


RETRY_DELAYS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def schedule_queue_id(level: int) -> int:
    """The queue of SCHEDULE_TOPIC_XXXX that holds a level."""
    return level - 1
