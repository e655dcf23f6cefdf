"""Transactions: half messages that wait for their end, and those that were set aside.

A broker stores a half message again whenever it has checked with its producers, and records in
another topic which transactions have ended. The page reads the newest part of both topics: a half
message without a recorded end is pending. An end is stored after its half message, so if not all
ends were read, the page claims nothing about half messages older than the oldest end it read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparrowmq.admin.errors import NotFound
from sparrowmq.console.scan import ScannedMessages, scan
from sparrowmq.console.view import Answer, Done, Page, PageRoute, View, changing
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

_MOST_READ = 500
MOST_ENDS = 500
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Transaction:
    """A half message."""

    message: MessageExt
    topic: str
    group: str
    """The producer group."""
    checks: int
    """How often the broker checked with the producers."""


async def show(view: View) -> Answer:
    """Show pending transactions, the oldest first, and those set aside, the newest first."""
    halves = await _newest(view, TRANS_HALF_TOPIC)
    ends = await _newest(view, TRANS_OP_HALF_TOPIC, MOST_ENDS)
    aside = await _newest(view, TRANS_CHECK_MAX_TIME_TOPIC)
    since_ms = known_since_ms(ends)
    held = [
        each for each in (halves.messages if halves else ()) if each.store_timestamp >= since_ms
    ]
    waiting = pending(held, ends.messages if ends else ())
    return Page(
        template="transactions.html",
        title="Transactions",
        area="waiting",
        command=f"sparrowmq message get {TRANS_HALF_TOPIC} --since -1h",
        is_live=False,
        values={
            "waiting": waiting[:_MOST_SHOWN],
            "more": max(0, len(waiting) - _MOST_SHOWN),
            "halves": halves,
            "unknown": len(halves.messages) - len(held) if halves else 0,
            "aside": aside,
            "set_aside": [transaction(each) for each in aside.messages[:_MOST_SHOWN]]
            if aside
            else [],
            "problems": sorted(
                {text for each in (halves, ends, aside) if each for text in each.problems}
            ),
        },
    )


def known_since_ms(ends: ScannedMessages | None) -> int:
    """The time from which on it is known which half messages have ended."""
    if ends is None or not (ends.left or ends.problems):
        return 0
    return min((each.store_timestamp for each in ends.messages), default=2**63)


async def _newest(view: View, name: str, most: int = _MOST_READ) -> ScannedMessages | None:
    """The newest messages of a topic; None if it does not exist."""
    admin = view.console.admin
    try:
        topic = await admin.topic(name)
    except NotFound:
        return None
    found = await scan(admin, topic, {}, newest_first=True, wants=lambda _: True, limit=most)
    return replace(found, problems=(*map(str, topic.errors), *found.problems))


def transaction(message: MessageExt) -> Transaction:
    """The transaction that a half message belongs to."""
    properties = message.properties
    checks = properties.get(names.TRANSACTION_CHECK_TIMES, "")
    return Transaction(
        message=message,
        topic=properties.get(names.REAL_TOPIC, ""),
        group=properties.get(names.PRODUCER_GROUP, ""),
        checks=int(checks) if checks.isdecimal() and len(checks) < 9 else 0,
    )


def pending(halves: Iterable[MessageExt], ends: Iterable[MessageExt]) -> list[Transaction]:
    """Half messages without a recorded end, by the time they were sent."""
    ended: set[tuple[str, str]] = set()
    for each in ends:
        numbers = each.body.decode("ascii", "replace").split(",")
        ended |= {(each.broker_name, number.strip()) for number in numbers}
    found = [
        transaction(each)
        for each in halves
        if (each.broker_name, str(each.queue_offset)) not in ended
    ]
    return sorted(found, key=lambda each: each.message.record.born_timestamp)


async def resume(view: View) -> Answer:
    """Let the broker check again with the producers of a transaction that was set aside."""
    wanted = view.entered("id")
    work = view.console.changer.resume_transaction(wanted)
    found = transaction(await changing(view, "resume transaction", wanted, "", "asked again", work))
    words = f"Producers of {found.group} are asked again about the transaction in {found.topic}."
    return Done("/waiting/transactions", words)


ROUTES = (
    PageRoute("/waiting/transactions", show),
    PageRoute("/waiting/transactions/resume", None, resume),
)
