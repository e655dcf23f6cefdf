"""Messages with a delivery time, by the hour in which they are due.

Brokers do not count by hour. The page looks through a bounded number of the newest messages in the
timer queue and says how many: if more are waiting, each figure covers only a part. A recall comes
after its message, so every recalled one among them is known and left out.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sparrowmq.admin.errors import NotFound
from sparrowmq.console.scan import BUDGET, scan
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import TIMER_TOPIC

_HOUR_MS = 3_600_000
_MOST_HOURS = 72
_MOST_TOPICS = 5


@dataclass(frozen=True, slots=True)
class Hour:
    """The messages due within one hour."""

    begin_ms: int
    messages: int
    topics: tuple[tuple[str, int], ...]
    """The most frequent topics."""


async def show(view: View) -> Answer:
    """Show every hour in which messages are due."""
    console = view.console
    brokers = await panel(console.admin.brokers())
    found = None
    try:
        topic = await console.admin.topic(TIMER_TOPIC)
    except NotFound:
        pass
    else:
        found = await scan(
            console.admin, topic, {}, newest_first=True, wants=lambda _: True, limit=BUDGET
        )
    hours = by_hour(found.messages if found else (), view.now_ms)
    masters = [each for each in brokers.value or () if each.is_master and each.runtime]
    counts = [each.runtime.waiting_timers for each in masters if each.runtime]
    waiting = None if None in counts or brokers.notes else sum(each or 0 for each in counts)
    return Page(
        template="timers.html",
        title="Messages by delivery time",
        area="waiting",
        command=f"sparrowmq broker show {masters[0].name}" if masters else "sparrowmq broker list",
        is_live=False,
        values={
            "brokers": brokers,
            "found": found,
            "hours": hours[:_MOST_HOURS],
            "later": sum(each.messages for each in hours[_MOST_HOURS:]),
            "counted": sum(each.messages for each in hours),
            "largest": max((each.messages for each in hours), default=0),
            "waiting": waiting,
            "is_whole": found is None or not (found.left or found.problems),
        },
    )


def due_ms(message: MessageExt) -> int | None:
    """When a message of the timer queue is due; None for a recall, which delivers nothing."""
    properties = message.properties
    if names.TIMER_DELETE_UNIQUE_KEY in properties:
        return None
    text = properties.get(names.TIMER_OUT_MS, "")
    return int(text) if text.isdecimal() and len(text) < 16 else None


def by_hour(messages: Iterable[MessageExt], now_ms: int) -> list[Hour]:
    """The messages that are not due yet and were not recalled, the next hour first. Apache's
    brokers store a message that is due late again on its way, so count duplicates once."""
    held = list(messages)
    recalled = {each.properties.get(names.TIMER_DELETE_UNIQUE_KEY) for each in held}
    found: dict[int, Counter[str]] = {}
    seen: set[str] = set()
    for message in held:
        due, properties = due_ms(message), message.properties
        topic = properties.get(names.REAL_TOPIC, message.topic)
        identity = f"{topic}+{properties.get(names.UNIQUE_KEY, '')}"
        if due is None or due <= now_ms or identity in recalled or identity in seen:
            continue
        if names.UNIQUE_KEY in properties:
            seen.add(identity)
        found.setdefault(due // _HOUR_MS * _HOUR_MS, Counter())[topic] += 1
    return [
        Hour(hour, topics.total(), tuple(topics.most_common(_MOST_TOPICS)))
        for hour, topics in sorted(found.items())
    ]


ROUTES = (PageRoute("/waiting/timers", show),)
