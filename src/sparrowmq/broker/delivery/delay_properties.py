"""The delay that a message's properties ask for: its level or time, and when it is due."""

from collections.abc import Mapping

from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.properties import (
    DELAY_LEVEL,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)

TIMES = frozenset({TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_MS})
"""Each of them asks for a delivery time."""
DELAYS = TIMES | {DELAY_LEVEL}
"""A message without any of these is never delayed."""


def delay_level(fields: Mapping[str, str]) -> int:
    """The level a message asks for, 0 for none. Raises RequestRefused if it is not a number."""
    return _whole_number(fields, DELAY_LEVEL) if DELAY_LEVEL in fields else 0


def _whole_number(fields: Mapping[str, str], name: str) -> int:
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
    """The delivery time a message asks for at `now_ms`; it may already have passed.

    Raises RequestRefused if it is not a number, or further away than `longest_s`.
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


_SLOT_MS = 1000
"""Apache's precision: its slots begin with whole seconds."""


def slot_ms(deliver_ms: int) -> int:
    """TIMER_OUT_MS: the last whole second before a delivery time."""
    return (deliver_ms - 1) // _SLOT_MS * _SLOT_MS


def entry_ms(fields: Mapping[str, str], store_timestamp: int) -> int | None:
    """When an entry of the timer queue is due; None if it does not say.

    A recall takes effect at the beginning of its message's slot, which is before the message.
    Messages stored by Apache are due by their slot; ours, and those that still have the requested
    time, by the millisecond.
    """
    out_ms = _number(fields.get(TIMER_OUT_MS))
    if out_ms is None:
        return None
    if TIMER_DELETE_UNIQUE_KEY in fields:
        return out_ms
    asked_ms = asked_time_ms(fields, store_timestamp)
    # The slot is authoritative; the requested time only says where inside it.
    if asked_ms is not None and out_ms < asked_ms <= out_ms + _SLOT_MS:
        return asked_ms
    return out_ms + _SLOT_MS


def asked_time_ms(fields: Mapping[str, str], now_ms: int) -> int | None:
    """The delivery time a message asks for at `now_ms`; None if it is not a number.

    If there are several, a delay in seconds wins over one in milliseconds, and that over a time.
    """
    if TIMER_DELAY_S not in fields and TIMER_DELAY_MS not in fields:
        text = fields.get(TIMER_DELIVER_MS, "")
        if len(text) == 13 and text.isascii() and text.isdigit():  # any time of our century
            return int(text)
        return _number(text)
    unit_ms = 1000 if TIMER_DELAY_S in fields else 1
    number = _number(fields[TIMER_DELAY_S if TIMER_DELAY_S in fields else TIMER_DELAY_MS])
    return None if number is None else now_ms + number * unit_ms


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or len(text) > 19:
        return None
    if text.isdigit():
        return int(text)
    return int(text) if text[:1] == "-" and text[1:].isdigit() else None
