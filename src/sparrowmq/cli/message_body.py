"""Bodies of messages in tables: as text, as JSON, or as hexadecimal digits; never cut silently."""

import json
from typing import Any

from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message_ext import MessageExt

BODY_FORMS = ("text", "json", "hex")

_PREVIEW = 200
"""Characters of a body in a table."""


def body_text(message: MessageExt, form: str, *, whole: bool) -> str:
    """A body in a form; for a table only its beginning, which then says how long it is."""
    try:
        text = _formed(message, form)
    except (BodyError, ValueError) as error:
        return f"({error})"
    if whole or len(text) <= _PREVIEW:
        return text
    return f"{text[:_PREVIEW]}… ({len(message.body):,} bytes)"


def _formed(message: MessageExt, form: str) -> str:
    if form == "hex":
        return message.body.hex(" ")
    if form == "json":
        value: Any = message.json()
        return json.dumps(value, ensure_ascii=False, indent=2)
    return message.body.decode("utf-8", "backslashreplace")
