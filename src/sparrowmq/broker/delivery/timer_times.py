"""When a message with a delivery time is due, worked out of its properties."""

from collections.abc import Mapping

from sparrowmq.protocol.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)

_SLOT_MS = 1000
"""Apache's precision: its slots begin with whole seconds."""


def slot_ms(deliver_ms: int) -> int:
    """TIMER_OUT_MS: the last whole second before a delivery time."""
    return (deliver_ms - 1) // _SLOT_MS * _SLOT_MS


def entry_ms(fields: Mapping[str, str], store_timestamp: int) -> int | None:
    """When an entry of the timer queue is to be looked at; None if it does not say.

    A recall takes effect at the beginning of its message's slot, which is before the message.
    Apache's own messages are due by their slot; ours, and those that still say what was asked for,
    by the millisecond.
    """
    out_ms = _number(fields.get(TIMER_OUT_MS))
    if out_ms is None:
        return None
    if TIMER_DELETE_UNIQUE_KEY in fields:
        return out_ms
    asked_ms = asked_time_ms(fields, store_timestamp)
    # The slot is the truth; what was asked for only says where inside of it.
    if asked_ms is not None and out_ms < asked_ms <= out_ms + _SLOT_MS:
        return asked_ms
    return out_ms + _SLOT_MS


def asked_time_ms(fields: Mapping[str, str], now_ms: int) -> int | None:
    """The delivery time a message asks for at `now_ms`; None if it is no number.

    Of several, seconds to wait count before milliseconds, and those before a time.
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
