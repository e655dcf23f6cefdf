"""How commands print a message: a line for people, JSON for programs, its bytes, or its body in a
table; never cut silently."""

import base64
import json
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

from sparrowmq.cli.option_types import Whole
from sparrowmq.clock import utc_text
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message_ext import MessageExt

T = TypeVar("T")
Form: TypeAlias = Callable[[MessageExt], str | bytes]
"""The function that formats a message for printing."""


def line_of(message: MessageExt) -> str:
    """Position, tag, keys and text of a message."""
    tags = f" [{message.tags}]" if message.tags else ""
    keys = f" {' '.join(message.keys)}" if message.keys else ""
    return f"{message.place}{tags}{keys}: {body_line(message.body)}"


def body_line(body: bytes) -> str:
    """A body on one line, without characters that control the terminal."""
    text = body.decode("utf-8", "backslashreplace")
    return "".join(
        each if each == "\t" or unicodedata.category(each) != "Cc" else f"\\x{ord(each):02x}"
        for each in text
    )


def body_field(body: bytes) -> dict[str, str]:
    """A body as a field of JSON; one that is not UTF-8 is in Base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def json_of(message: MessageExt) -> str:
    """Everything about a stored message as one JSON object; a body that is not UTF-8 is in Base64.
    `attempts` counts how often its group has failed to handle it."""
    return _json_of(message, message.reconsume_times)


def delivered_json_of(message: MessageExt) -> str:
    """The same for a message that is being delivered: `attempts` counts this delivery."""
    return _json_of(message, message.reconsume_times + 1)


def _json_of(message: MessageExt, attempts: int) -> str:
    document: dict[str, Any] = {
        "topic": message.original_topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.msg_id,
        "tag": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "born": utc_text(message.born_at),
        "stored": utc_text(message.stored_at),
        "attempts": attempts,
        **body_field(message.body),
    }
    return json.dumps(document, ensure_ascii=False)


def raw_of(message: MessageExt) -> bytes:
    """The body, byte for byte."""
    return message.body


# ---- bodies in tables


BODY_FORMS = ("text", "json", "hex")

_MOST = 10_000
MORE = f"--limit N for more, up to {_MOST:,}; --since and --until for others"
"""How to see the rest of a table of messages that was cut."""
_PREVIEW = 200
"""How many characters of a body a table shows."""


def message_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--limit` and `--body` of commands that show stored messages in a table."""
    limit = click.option(
        "--limit",
        type=Whole(1, _MOST),
        metavar="N",
        default=20,
        show_default=True,
        help="At most this many messages.",
    )
    body = click.option(
        "--body",
        type=click.Choice(BODY_FORMS),
        default="text",
        show_default=True,
        help="How bodies are shown; in a table the first 200 characters.",
    )
    return limit(body(command))


def body_text(message: MessageExt, form: str, *, whole: bool) -> str:
    """A body in a form; for a table only the beginning, followed by the body's length."""
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
