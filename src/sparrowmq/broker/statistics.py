"""How much came in and went out, per topic and group, over a minute, an hour and a day.

Nothing is counted while messages pass: the end of a queue says what was put, and the stored offset
of a group what it has consumed. Every ten seconds, and for a request that asks for statistics, all
offsets are sampled and the differences added up.

    every 10 s  ── minute: the last 7 looks     every 10 min ── hour: 7     every hour ── day: 25
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.environment import Environment
from sparrowmq.clock import Zone, utc
from sparrowmq.protocol.broker_stats import BrokerStatsData, BrokerStatsItem
from sparrowmq.protocol.names import TIMER_TOPIC, is_system_topic
from sparrowmq.store.store import Store

TOPIC_PUT = "TOPIC_PUT_NUMS"
GROUP_GET = "GROUP_GET_NUMS"
BROKER_PUT = "BROKER_PUT_NUMS"
BROKER_GET = "BROKER_GET_NUMS"
"""Names as Apache's Stats has them; of a topic, of `topic@group`, of the cluster."""
DELIVERED_TIMERS = f"{TIMER_TOPIC}@delivered"
"""Name of what the broker itself has consumed of the timer queue, which it does out of order."""
SAMPLE_MS = 10_000
_SPANS = ((SAMPLE_MS, 7), (600_000, 7), (3_600_000, 25))
_DAY_MS = 86_400_000
_FRESH_MS = 1_000
_MOST_STARTS = 100_000
"""Starting points of groups that never committed anything must not pile up."""
Sample = tuple[int, int]
"""When, and the total then."""
Offsets = Iterable[tuple[str, Mapping[int, int]]]


async def keep_sampling(broker: Broker) -> None:
    """Sample for ever."""
    while True:
        await asyncio.sleep(SAMPLE_MS / 1000)
        sample(broker)


def refresh(broker: Broker) -> None:
    """Bring the statistics up to date for a request, at most once a second: with thousands of
    queues a sample takes milliseconds, and a tool may ask for every topic in turn."""
    if broker.monotonic() - broker.statistics.sampled_ms >= _FRESH_MS:
        sample(broker)


def sample(broker: Broker) -> None:
    """Sample all offsets now."""
    ends: dict[str, dict[int, int]] = {}
    for topic, queue_id in broker.store.queues():
        ends.setdefault(topic, {})[queue_id] = broker.store.max_offset(topic, queue_id)
    delivered = broker.store.max_offset(TIMER_TOPIC, 0) - len(broker.delivery.timers)
    timers = (DELIVERED_TIMERS, {0: delivered})
    broker.statistics.sample(
        broker.monotonic(),
        ends.items(),
        [*broker.offsets.rows(), timers],
        log_offset=broker.store.max_log_offset,
        today_ms=broker.clock(),
    )


class Statistics:
    """All counters of a broker since it started. Idle topics and groups cost nothing.

    Times are monotonic; `today_ms`, by the clock, only says which day it is.
    """

    def __init__(self, now_ms: int, *, cluster: str, today_ms: int = 0, zone: Zone = utc) -> None:
        self.started_ms = now_ms
        self._zone = zone
        self._puts = _Moves()
        self._gets = _Moves()
        self._is_first = True
        self.sampled_ms = now_ms
        """When offsets were sampled last."""
        self._first_log_offset = 0
        self.log_growth_bytes = 0
        """By how much the log had grown since the start, in the last sample."""
        self._put = Series(now_ms)
        self._got = Series(now_ms)
        self._series: dict[tuple[str, str], Series] = {
            (BROKER_PUT, cluster): self._put,
            (BROKER_GET, cluster): self._got,
        }
        self._day = self._day_of(today_ms)
        self.mornings: tuple[Sample, Sample] = ((0, 0), (0, 0))
        """Totals put and got, in yesterday's first sample and in today's."""

    @classmethod
    def open(cls, config: BrokerConfig, env: Environment) -> Self:
        """All counters at 0."""
        return cls(
            env.monotonic(),
            cluster=config.cluster_name,
            today_ms=env.clock(),
            zone=config.store.zone(env.zone),
        )

    def sample(
        self,
        now_ms: int,
        queues: Offsets,
        groups: Offsets,
        *,
        log_offset: int = 0,
        today_ms: int = 0,
    ) -> None:
        """Take the ends of all queues by topic, all offsets by `topic@group`, and the log's end.

        The first sample only notes where things stand. What a group consumed before its first
        sample is counted if `group_starts` noted where it began.
        """
        put = self._puts.take(queues, new_starts_at_0=not self._is_first)
        got = self._gets.take(groups, new_starts_at_0=False)
        if not self._is_first:
            self._add(TOPIC_PUT, put, self._put, now_ms)
            self._add(GROUP_GET, got, self._got, now_ms)
        else:
            self._first_log_offset = log_offset
        self._is_first = False
        self.log_growth_bytes = log_offset - self._first_log_offset
        self.sampled_ms = now_ms
        self._forget_deleted()
        for series in self._series.values():
            series.sample(now_ms)
        if self._day_of(today_ms) > self._day:
            self._day = self._day_of(today_ms)
            self.mornings = (self.mornings[1], self.totals)

    def _add(self, name: str, moved: Mapping[str, int], total: Series, now_ms: int) -> None:
        for key, count in moved.items():
            series = self._series.get((name, key))
            if series is None:
                series = self._series[name, key] = Series(max(self.started_ms, now_ms - SAMPLE_MS))
            series.total += count
            if not is_system_topic(key.partition("@")[0]):
                total.total += count

    def group_starts(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group without progress was sent to this offset."""
        self._gets.start(f"{topic}@{group}", queue_id, offset)

    @property
    def totals(self) -> tuple[int, int]:
        """Messages put and got since the start, without the broker's own topics."""
        return self._put.total, self._got.total

    def recent_tps(self, now_ms: int) -> tuple[tuple[float, float, float], ...]:
        """Puts and gets per second over the last 10 s, minute and ten minutes."""
        return self._put.recent_tps(now_ms), self._got.recent_tps(now_ms)

    def counted(self, name: str) -> dict[str, int]:
        """Totals since the start of all counters with a name, by their keys."""
        return {key: each.total for (its, key), each in self._series.items() if its == name}

    def spans(self, name: str, key: str, now_ms: int) -> BrokerStatsData | None:
        """A counter by its name; None if there is none, or nothing was ever counted."""
        series = self._series.get((name, key))
        return None if series is None else series.spans(now_ms)

    def tps(self, name: str, key: str, now_ms: int) -> float:
        """Per second over the last minute; 0 for a counter that does not exist."""
        spans = self.spans(name, key, now_ms)
        return 0.0 if spans is None else spans.stats_minute.tps

    def _forget_deleted(self) -> None:
        """Drop the counters of topics and groups that are not there any more."""
        rows = {TOPIC_PUT: self._puts, GROUP_GET: self._gets}
        for name, key in tuple(self._series):
            if name in rows and key not in rows[name]:
                del self._series[name, key]

    def _day_of(self, time_ms: int) -> int:
        return (time_ms + self._zone(time_ms)) // _DAY_MS


class Series:
    """The history of one counter."""

    __slots__ = ("_samples", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self._samples: tuple[list[Sample], ...] = tuple([(now_ms, 0)] for _ in _SPANS)

    def sample(self, now_ms: int) -> None:
        """Remember the total, in each span whose time has come."""
        for (interval_ms, most), samples in zip(_SPANS, self._samples, strict=True):
            if now_ms - samples[-1][0] >= interval_ms:
                samples.append((now_ms, self.total))
                del samples[:-most]

    def spans(self, now_ms: int) -> BrokerStatsData:
        """The last minute, hour and day, as far as they were watched."""
        minute, hour, day = (self._item(samples[0], now_ms) for samples in self._samples)
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _item(self, since: Sample, now_ms: int) -> BrokerStatsItem:
        count = self.total - since[1]
        return BrokerStatsItem(sum=count, tps=_rate(count, now_ms - since[0]))

    def recent_tps(self, now_ms: int) -> tuple[float, float, float]:
        """Per second over the last 10 s, minute and ten minutes."""
        minute, hour, _ = self._samples
        last = minute[-1] if now_ms - minute[-1][0] >= SAMPLE_MS / 2 else minute[-2:][0]
        starts = (last, minute[0], hour[-2:][0])
        ten_s, sixty_s, ten_min = (self._item(start, now_ms).tps for start in starts)
        return ten_s, sixty_s, ten_min


def _rate(count: int, elapsed_ms: int) -> float:
    return count * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0


class _Moves:
    """How far offsets have moved since the last sample."""

    def __init__(self) -> None:
        self._seen: dict[str, Mapping[int, int]] = {}
        self._starts: dict[tuple[str, int], int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._seen

    def start(self, name: str, queue_id: int, offset: int) -> None:
        """Where an offset that appears later began."""
        if len(self._starts) >= _MOST_STARTS:
            self._starts.clear()
        self._starts[name, queue_id] = offset

    def take(self, rows: Offsets, *, new_starts_at_0: bool) -> dict[str, int]:
        """What was added under each name. A step back, after a reset, adds nothing."""
        moved: dict[str, int] = {}
        seen: dict[str, Mapping[int, int]] = {}
        for name, offsets in rows:
            seen[name] = offsets
            before = self._seen.get(name, {})
            added = 0
            for queue_id, offset in offsets.items():
                last = before.get(queue_id)
                if last is None:
                    first = 0 if new_starts_at_0 else offset
                    last = self._starts.pop((name, queue_id), first)
                added += max(0, offset - last)
            if added:
                moved[name] = added
        self._seen = seen
        return moved


# ---- when messages were stored, by their place in a queue


def stored_at(store: Store, topic: str, queue_id: int, offset: int) -> int:
    """The store time of one message of a queue; -1 if it is not there."""
    for log_offset, _, _ in store.units(topic, queue_id, offset, 1):
        return store.store_time(log_offset)
    return -1
