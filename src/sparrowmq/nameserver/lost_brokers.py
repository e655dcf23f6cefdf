"""Lost brokers and their topics, to explain why a topic has no route.

Routes never come from here. A topic whose broker has died looks like one that was never created,
and an operator who creates it on another broker splits it in two.
"""

from collections.abc import Set
from typing import NamedTuple

_MOST_BROKERS = 100
_MOST_TOPICS = 100_000
"""For all lost brokers together: bogus registrations must not fill the memory."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class LostBroker(NamedTuple):
    """A lost broker that was the last one of its name."""

    name: str
    address: str
    how: str
    """What it did last: `disconnected`, `fell silent`, `left`."""
    since_ms: int
    topics: frozenset[str]

    def text(self, now_ms: int) -> str:
        """Which broker, what happened and when."""
        return f"broker {self.name} at {self.address} {self.how} {_ago(now_ms - self.since_ms)} ago"


class LostBrokers:
    """Lost brokers by name, oldest first; one that returns is forgotten."""

    def __init__(self) -> None:
        self._by_name: dict[str, LostBroker] = {}

    def remember(self, name: str, address: str, how: str, since_ms: int, topics: Set[str]) -> None:
        """Remember a lost broker that was the last one of its name."""
        self.forget(name)
        self._by_name[name] = LostBroker(name, address, how, since_ms, frozenset(topics))
        while len(self._by_name) > _MOST_BROKERS or self._topics > _MOST_TOPICS:
            self.forget(next(iter(self._by_name)))

    @property
    def _topics(self) -> int:
        return sum(len(each.topics) for each in self._by_name.values())

    def forget(self, name: str) -> None:
        """Forget a name, because a broker of that name is back."""
        self._by_name.pop(name, None)

    def forget_topic(self, topic: str) -> None:
        """Forget a topic that an operator has deleted."""
        for name, lost in self._by_name.items():
            if topic in lost.topics:
                self._by_name[name] = lost._replace(topics=lost.topics - {topic})

    def having(self, topic: str) -> list[LostBroker]:
        """The lost brokers that had a topic."""
        return [lost for lost in self._by_name.values() if topic in lost.topics]


def _ago(past_ms: int) -> str:
    past_s = max(past_ms, 0) // 1000
    size, unit = next(each for each in _UNITS if past_s >= each[0] or each[0] == 1)
    return f"{past_s // size} {unit}"
