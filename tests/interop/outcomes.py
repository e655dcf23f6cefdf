"""Turns what clients report into plain values, equal whenever brokers behave equally."""

import hashlib
from collections import Counter
from typing import Any

from tests.interop.handles import Message, Sent

# Present or absent matters; the value is an id, a time or a race.
VOLATILE = {
    "UNIQ_KEY",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "CONSUME_START_TIME",
    "ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_MESSAGE_ID",
    "__transactionId__",
    "TRANSACTION_CHECK_TIMES",
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_DELIVER_MS",
}

RECORD_CRC = "__CRC32#"
"""Apache writes the checksum of the whole record when told to, SparrowMQ always."""


def filled(text: str, size: int) -> str:
    """How the drivers show a body of that many bytes made by repeating a text."""
    body = (text * (size // len(text) + 1)).encode()[:size]
    return f"{size} bytes {hashlib.sha256(body).digest()[:8].hex()}"


def properties(message: Message) -> dict[str, str]:
    """A message's properties with ids, times and races blanked out."""
    given: dict[str, str] = message["properties"]
    plain = {name: "…" if name in VOLATILE else value for name, value in given.items()}
    plain.pop(RECORD_CRC, None)
    return plain


def seen(messages: list[Message]) -> list[dict[str, Any]]:
    """Messages as a sorted list of body, flag, reconsume count and properties."""
    rows = [
        {
            "body": message["body"],
            "flag": message["flag"],
            "reconsume_times": message["reconsume_times"],
            "properties": properties(message),
        }
        for message in messages
    ]
    return sorted(rows, key=lambda row: (row["body"], row["reconsume_times"]))


def bodies(messages: list[Message]) -> list[str]:
    """All bodies, sorted; a body that came twice stands there twice."""
    return sorted(message["body"] for message in messages)


def twice(*lists: list[str]) -> list[str]:
    """Bodies that came more than once over all lists."""
    counts = Counter(body for one in lists for body in one)
    return sorted(body for body, count in counts.items() if count > 1)


def statuses(sent: list[Sent]) -> dict[str, int]:
    """How many sends had which status."""
    return dict(
        Counter(one["status"] if "status" in one else one["error"]["class"] for one in sent)
    )


def dense(sent: list[Sent]) -> bool:
    """Whether the queue offsets of these sends count from 0 without a gap in every queue."""
    offsets: dict[int, list[int]] = {}
    for one in sent:
        offsets.setdefault(one["queue_id"], []).append(one["queue_offset"])
    return all(sorted(got) == list(range(len(got))) for got in offsets.values())


def in_order(messages: list[Message]) -> bool:
    """Whether every queue's messages came in the order of their offsets."""
    last: dict[int, int] = {}
    for message in messages:
        queue_id, offset = message["queue_id"], message["queue_offset"]
        if offset <= last.get(queue_id, -1):
            return False
        last[queue_id] = offset
    return True
