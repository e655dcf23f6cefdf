"""Polls the cluster for its figures and remembers them.

```
every 10 s     brokers     rates, disk
every 30 s     groups      lag and progress      all together, some of them one by one
               topics      rate and messages     those shown lately and the busiest, others in turn
every 60 s     doctor      findings
```

A round makes a bounded number of requests, and its interval doubles when the question about all
groups takes longer than a second, so that a console never becomes the load that it shows.

Asked one by one are groups that a page showed lately, those that cannot be sampled together
(`admin/sampled_progress.py`), and a few others in turn: only such a question finds topics that a
group's members wait for without any progress.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
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
from sparrowmq.console.view import EXPECTED, Panel, Sum, panel, panel_of, panels
from sparrowmq.protocol.names import is_system_group

_BROKERS_S = 10.0
_ROUND_S = 30.0
_LONGEST_ROUND_S = 480.0
_DOCTOR_S = 60.0
_MOST_EXAMINED = 20
_SLOW_S = 1.0
_MOST_ASKED = 60
"""Most groups, and most topics, in one round: with three requests each, 12 requests a second."""
_MOST_CHECKED = 20
"""Most groups that are asked about one by one although they were sampled together."""
_MOST_BUSY = 20
"""Topics whose rates are sampled in every round, besides those shown lately."""
_MOST_CHARTED_GROUPS = 600
_MOST_CHARTED_TOPICS = 400
"""More topics than this are charted only while shown or busy. With two series for a group, one for
a topic and those of brokers, the history (2,000 series) never drops one of these for another."""
MOST_LAGGING = 10
"""The groups of which the overview says how long they wait."""
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
    """When the oldest message that waits was stored; None if none waits or that is not known."""
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
    doctor_problem: str = ""
    """Why its last run failed."""

    def groups_of(self, topic: str) -> Sum:
        """How many groups have progress in a topic, as far as known."""
        missing = self._not_counted
        found = sum(topic in each.by_topic for each in self.groups.values())
        return Sum(found if self.groups or not missing else None, missing)

    @property
    def lag(self) -> Sum:
        """Unread messages of all groups."""
        known = self.groups.values()
        missing = dict.fromkeys(word for each in known for word in each.missing)
        missing |= dict.fromkeys(self._not_counted)
        is_known = bool(known) or not missing
        return Sum(sum(each.lag for each in known) if is_known else None, tuple(missing))

    @property
    def _not_counted(self) -> tuple[str, ...]:
        if self.group_count is None:
            return ("groups not counted yet",)
        left = self.group_count - len(self.groups)
        return (f"{plural(left, 'group')} not counted yet",) if left else ()


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

    def next(
        self, names: Sequence[str], first: Collection[str], most: int = _MOST_ASKED
    ) -> list[str]:
        """The names of one round: those in `first`, then as many others as fit, continuing after
        the last round."""
        chosen = [name for name in names if name in first][:most]
        others = [name for name in names if name not in first]
        start = next((at for at, name in enumerate(others) if name > self._after), 0)
        rest = [*others[start:], *others[:start]][: most - len(chosen)]
        if rest:
            self._after = rest[-1]
        return [*chosen, *rest]


class Sampler:
    """Samples in the background while pages are served."""

    def __init__(self, admin: Admin, names: ClusterNames, history: History, clock: Clock) -> None:
        self.figures = Figures()
        self.seen_groups, self.seen_topics = RecentlyShown(clock), RecentlyShown(clock)
        self._admin = admin
        self._names = names
        self._history = history
        self._left_turns, self._check_turns, self._topic_turns = Turns(), Turns(), Turns()

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
        """Let the doctor examine the cluster, the groups with the most unread messages and the
        busiest topics."""
        groups, topics = self.figures.groups, self.figures.topics
        try:
            self.figures.examination = await self._admin.doctor(
                limit=_MOST_EXAMINED,
                groups_first=sorted(groups, key=lambda name: -groups[name].lag),
                topics_first=sorted(topics, key=lambda name: -topics[name].stored_per_s),
            )
        except EXPECTED as error:
            self.figures.doctor_problem = str(error)
            raise
        self.figures.doctor_problem = ""

    async def sample_names(self) -> None:
        """Sample the groups and topics of this round."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        groups = [name for name in await self._names.groups() if not is_system_group(name)]
        topics = [name for name in await self._names.topics() if self._names.is_plain_topic(name)]
        together = await self._sample_together(groups)
        is_slow = loop.time() - began > _SLOW_S
        await self.sample_groups(groups, together)
        await self.sample_topics(topics)
        self._forget(set(groups), set(topics))
        self.figures.group_count = len(groups)
        lag = self.figures.lag
        self._history.add("lag", None if lag.missing else lag.value)
        is_slow = is_slow or loop.time() - began > _SLOW_S + _ROUND_S / 10
        longer = min(self.figures.round_s * 2, _LONGEST_ROUND_S)
        self.figures.round_s = longer if is_slow else _ROUND_S

    async def _sample_together(self, groups: Sequence[str]) -> dict[str, Panel[GroupLag]]:
        """The groups of which brokers say enough when asked about all."""
        try:
            lags = await self._admin.sampled_lags(groups)
        except EXPECTED as error:
            log.debug("groups are asked about one by one: %s", error)
            return {}
        return {each.group: panel_of(each) for each in lags if not self._knows_more_topics(each)}

    def _knows_more_topics(self, lag: GroupLag) -> bool:
        known = self.figures.groups.get(lag.group)
        return bool(known and not lag.errors and known.by_topic.keys() - lag.by_topic.keys())

    async def sample_groups(
        self, groups: Sequence[str], together: Mapping[str, Panel[GroupLag]]
    ) -> None:
        """Lag and progress of the groups; some of them were sampled together."""
        shown = self.seen_groups.lately()
        left = [name for name in groups if name not in together]
        asked = self._left_turns.next(left, shown)
        asked += self._check_turns.next([*together], shown, _MOST_CHECKED)
        answers = {**together, **await panels(asked, self._lag, at_once=_AT_ONCE)}
        lags = {name: each.value for name, each in answers.items() if each.value is not None}
        largest = heapq.nlargest(_MOST_CHARTED_GROUPS, lags, key=lambda name: lags[name].lag)
        charted = {*shown, *largest}
        oldest = await self.oldest_waiting({name: lags[name] for name in largest[:MOST_LAGGING]})
        for name, answer in answers.items():
            self.remember_lag(answer, oldest.get(name), is_charted=name in charted)

    async def oldest_waiting(self, lags: Mapping[str, GroupLag]) -> dict[str, datetime | None]:
        """When the oldest message that waits for each group was stored, as far as that is known."""
        lagging = [name for name, lag in lags.items() if lag.lag]
        found = await panels(
            lagging, lambda name: self._admin.oldest_waiting(lags[name]), at_once=_AT_ONCE
        )
        return {name: each.value for name, each in found.items()}

    def remember_lag(
        self,
        answer: Panel[GroupLag],
        oldest_waiting: datetime | None = None,
        *,
        is_charted: bool = True,
    ) -> None:
        """Record a lag. Pages, which fetch it anyway, call this too. A figure without a broker's
        part is not a sample: it would look like a drop."""
        lag = answer.value
        if lag is None:
            return
        self.figures.groups[lag.group] = GroupFigures(
            lag.lag, lag.consumed_per_s, lag.by_topic, oldest_waiting, answer.missing
        )
        if answer.missing or not is_charted:
            return
        self._history.add(f"lag/{lag.group}", lag.lag)
        self._history.add(f"consumed/{lag.group}", lag.consumed_per_s)

    async def _lag(self, name: str) -> GroupLag:
        return await self._admin.lag(name, owners=False)

    async def sample_topics(self, topics: Sequence[str]) -> None:
        """Rates and sizes of some topics."""
        known = self.figures.topics
        busiest = heapq.nlargest(_MOST_BUSY, known, key=lambda name: known[name].stored_per_s)
        first = {*self.seen_topics.lately(), *busiest}
        charted = first if len(topics) > _MOST_CHARTED_TOPICS else set(topics)
        asked = self._topic_turns.next(topics, first)
        answers = await panels(asked, self._admin.topic, at_once=_AT_ONCE)
        for name, answer in answers.items():
            self.remember_topic(answer, is_charted=name in charted)

    def remember_topic(self, answer: Panel[TopicInfo], *, is_charted: bool = True) -> None:
        """Record a topic's figures. Pages call this too."""
        topic = answer.value
        if topic is None:
            return
        self.figures.topics[topic.name] = SampledTopic(
            topic.messages, topic.stored_per_s, answer.missing
        )
        if is_charted and not answer.missing:
            self._history.add(f"stored/{topic.name}", topic.stored_per_s)

    def _forget(self, groups: set[str], topics: set[str]) -> None:
        for name in self.figures.groups.keys() - groups:
            del self.figures.groups[name]
        for name in self.figures.topics.keys() - topics:
            del self.figures.topics[name]


def total(values: Sequence[float | None]) -> float | None:
    """The sum, if all parts are known."""
    return None if None in values else sum(value for value in values if value is not None)
