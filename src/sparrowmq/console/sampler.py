"""Polls the cluster for its figures and remembers them.

```
every 10 s     brokers     rates, disk
every 30 s     groups      lag and progress      those shown lately first, then in turn
               topics      rate and messages     the same
every 60 s     doctor      findings
```

A round asks about a bounded number of names, and its interval doubles when it takes longer than a
second, so that a console never becomes the load that it shows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.doctor.findings import Examination
from sparrowmq.admin.lag import GroupLag
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.admin.values import Listing
from sparrowmq.clock import Clock
from sparrowmq.console.history import History
from sparrowmq.console.names import ClusterNames
from sparrowmq.console.text import plural
from sparrowmq.console.view import EXPECTED, Panel, Sum, panel, panels
from sparrowmq.protocol.names import is_system_group

_BROKERS_S = 10.0
_ROUND_S = 30.0
_LONGEST_ROUND_S = 480.0
_DOCTOR_S = 60.0
_MOST_EXAMINED = 20
_SLOW_S = 1.0
_MOST_ASKED = 60
"""Most groups, and most topics, in one round: with three requests each, 12 requests a second."""
_AT_ONCE = 4
_SEEN_MS = 10 * 60 * 1000

log = logging.getLogger("sparrowmq.console")


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The last known figures of a group."""

    lag: int
    consumed_per_s: float
    by_topic: dict[str, int]
    oldest_waiting: datetime | None
    missing: tuple[str, ...] = ()
    """Brokers whose part is missing, in words."""

    def sum(self, value: float) -> Sum:
        """One of these figures."""
        return Sum(value, self.missing)


@dataclass(frozen=True, slots=True)
class SampledTopic:
    """The last known figures of a topic."""

    messages: int
    stored_per_s: float
    missing: tuple[str, ...] = ()

    def sum(self, value: float) -> Sum:
        """One of these figures."""
        return Sum(value, self.missing)


@dataclass
class Figures:
    """The last answers; pages sort by them."""

    brokers: Panel[Listing[BrokerInfo]] = field(
        default_factory=lambda: Panel(None, "not asked yet")
    )
    groups: dict[str, GroupFigures] = field(default_factory=dict)
    topics: dict[str, SampledTopic] = field(default_factory=dict)
    group_count: int | None = None
    """The number of all groups, including those that no round has sampled yet."""
    round_s: float = _ROUND_S
    examination: Examination | None = None
    """What the doctor found last; None before its first run."""

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have progress in a topic, as far as known."""
        return sorted(name for name, each in self.groups.items() if topic in each.by_topic)

    @property
    def lag(self) -> Sum:
        """Unread messages of all groups."""
        known = self.groups.values()
        missing = dict.fromkeys(word for each in known for word in each.missing)
        if self.group_count is None:
            missing["groups not counted yet"] = None
        elif left := self.group_count - len(known):
            missing[f"{plural(left, 'group')} not counted yet"] = None
        is_known = bool(known) or not missing
        return Sum(sum(each.lag for each in known) if is_known else None, tuple(missing))


class RecentlyShown:
    """The names that a page showed lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, int] = {}

    def mark(self, name: str) -> None:
        """Note that a page shows it now."""
        self._seen[name] = self._clock()

    def lately(self) -> set[str]:
        """The names shown in the last ten minutes."""
        start = self._clock() - _SEEN_MS
        self._seen = {name: time for name, time in self._seen.items() if time > start}
        return set(self._seen)


class Turns:
    """Goes through a list in rounds of bounded size."""

    def __init__(self) -> None:
        self._after = ""

    def next(self, names: Sequence[str], first: set[str]) -> list[str]:
        """The names of one round: those in `first`, then as many others as fit, continuing after
        the last round."""
        chosen = [name for name in names if name in first][:_MOST_ASKED]
        others = [name for name in names if name not in first]
        start = next((at for at, name in enumerate(others) if name > self._after), 0)
        rest = [*others[start:], *others[:start]][: _MOST_ASKED - len(chosen)]
        if rest:
            self._after = rest[-1]
        return [*chosen, *rest]


def oldest_waiting(lag: GroupLag) -> datetime | None:
    """When the message before the first unread one was stored, in the queue that is furthest
    behind: the unread one has waited since then at most."""
    times = [each.last_consumed for each in lag.queues if each.lag and each.last_consumed]
    return min(times, default=None)


class Sampler:
    """Samples in the background while pages are served."""

    def __init__(self, admin: Admin, names: ClusterNames, history: History, clock: Clock) -> None:
        self.figures = Figures()
        self.seen_groups, self.seen_topics = RecentlyShown(clock), RecentlyShown(clock)
        self._admin = admin
        self._names = names
        self._history = history
        self._group_turns, self._topic_turns = Turns(), Turns()

    async def run(self) -> None:
        """Sample until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(lambda: _BROKERS_S, self.sample_brokers))
            tasks.create_task(self._every(lambda: self.figures.round_s, self.sample_names))
            tasks.create_task(self._every(lambda: _DOCTOR_S, self.see_doctor))

    async def _every(
        self, seconds: Callable[[], float], work: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await work()
            except EXPECTED as error:
                log.debug("figures are missing: %s", error)
            await asyncio.sleep(seconds())

    async def sample_brokers(self) -> None:
        """Sample the rates of every broker, and their sums."""
        found = self.figures.brokers = await panel(self._admin.brokers())
        if found.value is None:
            return
        stored, delivered = [], []
        for broker in found.value:
            if broker.runtime is None or not broker.is_master:
                continue
            stored.append(broker.runtime.stored_per_s)
            delivered.append(broker.runtime.delivered_per_s)
            self._history.add(f"in/{broker.name}", broker.runtime.stored_per_s)
            self._history.add(f"out/{broker.name}", broker.runtime.delivered_per_s)
        if not found.notes:  # a sum without one of its parts would look like a drop
            self._history.add("in", total(stored))
            self._history.add("out", total(delivered))

    async def see_doctor(self) -> None:
        """Let the doctor examine the cluster, and some topics and groups."""
        self.figures.examination = await self._admin.doctor(limit=_MOST_EXAMINED)

    async def sample_names(self) -> None:
        """Sample the groups and topics of this round."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        groups = [name for name in await self._names.groups() if not is_system_group(name)]
        topics = [name for name in await self._names.topics() if self._names.is_plain_topic(name)]
        await self.sample_groups(self._group_turns.next(groups, self.seen_groups.lately()))
        await self.sample_topics(self._topic_turns.next(topics, self.seen_topics.lately()))
        self._forget(set(groups), set(topics))
        self.figures.group_count = len(groups)
        lag = self.figures.lag
        self._history.add("lag", None if lag.missing else lag.value)
        is_slow = loop.time() - began > _SLOW_S + (_ROUND_S / 10)
        longer = min(self.figures.round_s * 2, _LONGEST_ROUND_S)
        self.figures.round_s = longer if is_slow else _ROUND_S

    async def sample_groups(self, names: Sequence[str]) -> None:
        """Lag and progress."""
        answers = await panels(names, self._lag, at_once=_AT_ONCE)
        for answer in answers.values():
            self.remember_lag(answer)

    def remember_lag(self, answer: Panel[GroupLag]) -> None:
        """Record a lag. Pages, which fetch it anyway, call this too. A figure without a broker's
        part is not a sample: it would look like a drop."""
        lag = answer.value
        if lag is None:
            return
        self.figures.groups[lag.group] = GroupFigures(
            lag.lag, lag.consumed_per_s, lag.by_topic, oldest_waiting(lag), answer.missing
        )
        if answer.missing:
            return
        self._history.add(f"lag/{lag.group}", lag.lag)
        self._history.add(f"consumed/{lag.group}", lag.consumed_per_s)

    async def _lag(self, name: str) -> GroupLag:
        return await self._admin.lag(name, owners=False)

    async def sample_topics(self, names: Sequence[str]) -> None:
        """Rates and sizes."""
        answers = await panels(names, self._admin.topic, at_once=_AT_ONCE)
        for answer in answers.values():
            self.remember_topic(answer)

    def remember_topic(self, answer: Panel[TopicInfo]) -> None:
        """Record a topic's figures. Pages call this too."""
        topic = answer.value
        if topic is None:
            return
        self.figures.topics[topic.name] = SampledTopic(
            topic.messages, topic.stored_per_s, answer.missing
        )
        if answer.missing:
            return
        self._history.add(f"stored/{topic.name}", topic.stored_per_s)

    def _forget(self, groups: set[str], topics: set[str]) -> None:
        for name in self.figures.groups.keys() - groups:
            del self.figures.groups[name]
        for name in self.figures.topics.keys() - topics:
            del self.figures.topics[name]


def total(values: Sequence[float | None]) -> float | None:
    """The sum, if all parts are known."""
    return None if None in values else sum(value for value in values if value is not None)
