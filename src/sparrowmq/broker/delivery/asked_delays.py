"""What a message asks for in its properties: a delay level, or a delivery time."""

from collections.abc import Mapping

from sparrowmq.broker.delivery.timer_times import asked_time_ms
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.properties import (
    DELAY_LEVEL,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
)

TIMES = frozenset({TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_MS})
"""Each of them asks for a delivery time."""
DELAYS = TIMES | {DELAY_LEVEL}
"""A message without any of these is never delayed."""


def delay_level(fields: Mapping[str, str]) -> int:
    """The level a message asks for, 0 for none. Raises RequestRefused for what is no number."""
    return _number(fields, DELAY_LEVEL) if DELAY_LEVEL in fields else 0


def _number(fields: Mapping[str, str], name: str) -> int:
    """A property that must be a whole number of at most 64 bits. Raises RequestRefused."""
    text = fields[name]
    try:
        value = int(text) if text.isascii() and len(text) < 20 and "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL, f"property {name} is {text[:40]!r}, must be a number"
        )
    return value


def delivery_ms(fields: Mapping[str, str], now_ms: int, longest_s: float) -> int:
    """The delivery time a message asks for at `now_ms`; it may be over already.

    Raises RequestRefused for what is no number, or further away than `longest_s`.
    """
    asked_ms = asked_time_ms(fields, now_ms)
    if asked_ms is not None and asked_ms - now_ms <= longest_s * 1000:
        return asked_ms
    if asked_ms is None:
        names = ", ".join(sorted(TIMES & fields.keys()))
        text = f"the delivery time ({names}) is not a whole number of at most 19 digits"
    else:
        delay_ms = asked_ms - now_ms
        text = f"delivery in {delay_ms / 1000:.0f} s, at most {longest_s:.0f} s allowed"
    raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, text)
