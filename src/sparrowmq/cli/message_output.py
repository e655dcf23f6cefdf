"""How `sparrowmq consume` writes a message: a line for people, JSON for programs, or its bytes."""

import base64
import json
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias

from sparrowmq.protocol.message_ext import MessageExt

Form: TypeAlias = Callable[[MessageExt], str | bytes]
"""What is written for a message."""


def line_of(message: MessageExt) -> str:
    """Position, tag, keys and text of a message."""
    tags = f" [{message.tags}]" if message.tags else ""
    keys = f" {' '.join(message.keys)}" if message.keys else ""
    text = _harmless(message.body.decode("utf-8", "backslashreplace"))
    return f"{message.broker_name}/{message.queue_id}/{message.queue_offset}{tags}{keys}: {text}"


def _harmless(text: str) -> str:
    """A body in one line, without characters that would control the terminal it is shown on."""
    return "".join(
        each if each == "\t" or unicodedata.category(each) != "Cc" else f"\\x{ord(each):02x}"
        for each in text
    )


def json_of(message: MessageExt) -> str:
    """Everything about a message as one JSON object; a body that is not UTF-8 is in Base64."""
    document: dict[str, Any] = {
        "topic": message.original_topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.msg_id,
        "tag": message.tags,
        "keys": message.keys,
        "properties": message.user_properties,
        "born": message.born_at.isoformat(timespec="milliseconds"),
        "stored": message.stored_at.isoformat(timespec="milliseconds"),
        "attempts": message.reconsume_times + 1,
    }
    try:
        document["body"] = message.body.decode()
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return json.dumps(document, ensure_ascii=False)


def raw_of(message: MessageExt) -> bytes:
    """The body, byte for byte."""
    return message.body
