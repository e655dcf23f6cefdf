"""Waiting messages: for their delay, for their delivery time, for the end of a transaction."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel, panels
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC

_LEVEL = re.compile(r"scheduleMessageOffset_(\d+)")
_LONGEST_NUMBER = 16
_TRANSACTION_TOPICS = {
    TRANS_HALF_TOPIC: "half messages stored, finished ones among them",
    TRANS_CHECK_MAX_TIME_TOPIC: "transactions set aside after too many checks",
}


@dataclass(frozen=True, slots=True)
class Level:
    """A delay level on one broker."""

    broker: str
    level: int
    delay: str
    delivered: int
    stored: int

    @property
    def waiting(self) -> int:
        """Number of messages not delivered yet."""
        return max(0, self.stored - self.delivered)


async def show(view: View) -> Answer:
    """Show what waits on every broker."""
    admin = view.console.admin
    brokers = await panel(admin.brokers())
    topics = await view.console.names.topics()
    known = [name for name in _TRANSACTION_TOPICS if name in topics]
    halves = await panels(known, admin.topic)
    masters = [each for each in brokers.value or () if each.is_master]
    settings = await panels([each.name for each in masters], admin.broker_config)
    delays = {name: answer.value or {} for name, answer in settings.items()}
    levels = [level for each in masters for level in levels_of(each, delays[each.name])]
    shown = [level.broker for level in levels if level.waiting] + [each.name for each in masters]
    return Page(
        template="waiting.html",
        title="Waiting",
        area="waiting",
        command=f"sparrowmq broker show {shown[0]} --long" if shown else "sparrowmq broker list",
        values={
            "brokers": brokers,
            "levels": [level for level in levels if level.waiting],
            "level_count": len(levels),
            "masters": masters,
            "halves": halves,
            "words": _TRANSACTION_TOPICS,
            "late": late_s,
        },
    )


def late_s(broker: BrokerInfo) -> float | None:
    """For how many seconds the first message with a delivery time has been due."""
    text = broker.runtime.table.get("timerReadBehind", "") if broker.runtime else ""
    return int(text) if text.isdecimal() and len(text) < _LONGEST_NUMBER else None


def levels_of(broker: BrokerInfo, settings: Mapping[str, str]) -> list[Level]:
    """The levels that a broker reports; its settings say how long each is."""
    table = broker.runtime.table if broker.runtime else {}
    delays = settings.get("messageDelayLevel", "").split()
    found = []
    for key, value in table.items():
        match = _LEVEL.fullmatch(key)
        numbers = value.split(",")
        if match is None or len(numbers) != 2 or not all(n.isdecimal() for n in numbers):
            continue
        level = int(match[1])
        delay = delays[level - 1] if 0 < level <= len(delays) else "?"
        found.append(Level(broker.name, level, delay, int(numbers[0]), int(numbers[1])))
    return sorted(found, key=lambda each: each.level)


ROUTES = (PageRoute("/waiting", show),)
