"""How much came in and went out per topic and group, over a minute, an hour and a day.

Messages are not counted as they pass: the end of a queue says what was put, the stored offset of a
group what it has consumed, and the units of a queue how large that was. Every ten seconds, and for
a request that asks for statistics, all offsets are sampled and the differences added up
(`sampling.py`). Rare events are counted when they happen: messages that are sent back, and reads
that waited for the device.

    every 10 s  ── minute: last 7 samples     every 10 min ── hour: 7     every hour ── day: 25
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Self

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.environment import Environment
from sparrowmq.clock import Zone, utc
from sparrowmq.protocol.broker_stats import BrokerStatsData, BrokerStatsItem
from sparrowmq.protocol.names import TIMER_TOPIC, is_system_topic

TOPIC_PUT = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
BROKER_PUT = "BROKER_PUT_NUMS"
BROKER_GET = "BROKER_GET_NUMS"
"""Names as in Apache's Stats; per topic, per `topic@group`, per cluster."""
SENT_BACK = "SNDBCK_PUT_NUMS"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
GROUP_FROM_DISK = "GROUP_GET_FROM_DISK_NUMS"
GROUP_FROM_DISK_SIZE = "GROUP_GET_FROM_DISK_SIZE"
BROKER_FROM_DISK = "BROKER_GET_FROM_DISK_NUMS"
BROKER_FROM_DISK_SIZE = "BROKER_GET_FROM_DISK_SIZE"
"""Counted as they happen; the latency is that of `queue@topic@group`."""
DELIVERED_TIMERS = f"{TIMER_TOPIC}@delivered"
"""Counts what the broker itself has consumed from the timer queue, which it does out of order."""
SAMPLE_MS = 10_000
_SPANS = ((SAMPLE_MS, 7), (600_000, 7), (3_600_000, 25))
_SAMPLE = 3
"""Numbers in a sample: a time, and the total and how often it was added to at that time."""
_DAY_MS = 86_400_000
_MOST_STARTS = 100_000
"""A limit, so that starting points of groups that never commit do not pile up."""
Sample = tuple[int, int]
"""A time, and the total at that time."""
Offsets = Iterable[tuple[str, Mapping[int, int]]]
SizeOf = Callable[[str, int, int, int], int]
"""The bytes of a topic's queue between two offsets."""
_Moved = dict[str, tuple[int, int]]
"""Messages and bytes under each name."""


def _unknown_size(topic: str, queue_id: int, first: int, end: int) -> int:
    return 0


class Statistics:
    """All counters of a broker since it started. Idle topics and groups cost nothing.

    Times are monotonic; `today_ms`, a time of day, only says which day it is.
    """

    def __init__(self, now_ms: int, *, cluster: str, today_ms: int = 0, zone: Zone = utc) -> None:
        self.started_ms = now_ms
        self._zone = zone
        self._puts = _Moves()
        self._gets = _Moves()
        self._is_first = True
        self.sampled_ms = now_ms
        """When offsets were last sampled."""
        self._first_log_offset = 0
        self.log_growth_bytes = 0
        """By how much the log had grown since the start, in the last sample."""
        self.longest_get_ms = 0
        """The longest wait of a get for the device since the start."""
        self._cluster = cluster
        self._put = Series(now_ms)
        self._put.is_kept = True
        self._got = Series(now_ms)
        self._got.is_kept = True
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
        """`look` in one go."""
        for _ in self.look(now_ms, queues, groups, log_offset=log_offset, today_ms=today_ms):
            pass

    def look(
        self,
        now_ms: int,
        queues: Offsets,
        groups: Offsets,
        *,
        size_of: SizeOf = _unknown_size,
        log_offset: int = 0,
        today_ms: int = 0,
    ) -> Iterator[None]:
        """Take the ends of all queues by topic, all offsets by `topic@group`, and the log's end.

        One step per row, between which the loop may run; one look at a time. The first look only
        records the current state. What a group consumed before the first look at it is counted if
        `group_starts` noted where it began.
        """
        is_first = self._is_first
        put = yield from self._puts.take(queues, size_of, new_starts_at_0=not is_first)
        got = yield from self._gets.take(groups, size_of, new_starts_at_0=False)
        if is_first:
            self._first_log_offset = log_offset
        else:
            yield from self._add((TOPIC_PUT, TOPIC_PUT_SIZE), put, self._put, now_ms)
            yield from self._add((GROUP_GET, GROUP_GET_SIZE), got, self._got, now_ms)
        self._is_first = False
        self.log_growth_bytes = log_offset - self._first_log_offset
        self.sampled_ms = now_ms
        yield from self._keep_history(now_ms)
        if self._day_of(today_ms) > self._day:
            self._day = self._day_of(today_ms)
            self.mornings = (self.mornings[1], self.totals)

    def _add(
        self, names: tuple[str, str], moved: _Moved, total: Series, now_ms: int
    ) -> Iterator[None]:
        for key, amounts in moved.items():
            for name, amount in zip(names, amounts, strict=True):
                self._of(name, key, now_ms).total += amount
            if not is_system_topic(key.partition("@")[0]):
                total.total += amounts[0]
            yield

    def _of(self, name: str, key: str, now_ms: int) -> Series:
        series = self._series.get((name, key))
        if series is None:
            series = self._series[name, key] = Series(max(self.started_ms, now_ms - SAMPLE_MS))
        return series

    def _keep_history(self, now_ms: int) -> Iterator[None]:
        """Remember all totals; drop the counters of topics and groups that no longer exist, and of
        rare events that have not happened for a day."""
        rows = {TOPIC_PUT: self._puts, TOPIC_PUT_SIZE: self._puts}
        rows |= {GROUP_GET: self._gets, GROUP_GET_SIZE: self._gets}
        for name, key in tuple(self._series):
            series, moves = self._series[name, key], rows.get(name)
            if (moves is None and series.is_idle) or (moves is not None and key not in moves):
                del self._series[name, key]
            else:
                series.sample(now_ms)
            yield

    def count(self, name: str, key: str, amount: int, now_ms: int) -> None:
        """Count a rare event."""
        series = self._of(name, key, now_ms)
        series.total += amount
        series.times += 1

    def read_from_disk(
        self,
        group: str,
        topic: str,
        queue_id: int,
        *,
        count: int,
        size: int,
        began_ms: int,
        now_ms: int,
    ) -> None:
        """Count a get that waited for the device; all others take less than a millisecond."""
        took_ms = now_ms - began_ms
        self.longest_get_ms = max(self.longest_get_ms, took_ms)
        self.count(GROUP_GET_LATENCY, f"{queue_id}@{topic}@{group}", took_ms, now_ms)
        self.count(GROUP_FROM_DISK, f"{topic}@{group}", count, now_ms)
        self.count(GROUP_FROM_DISK_SIZE, f"{topic}@{group}", size, now_ms)
        self.count(BROKER_FROM_DISK, self._cluster, count, now_ms)
        self.count(BROKER_FROM_DISK_SIZE, self._cluster, size, now_ms)

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

    def keys(self, name: str) -> list[str]:
        """The keys of all counters with a name."""
        return [key for its, key in self._series if its == name]

    def total(self, name: str, key: str) -> int:
        """The total since the start; 0 for a counter that does not exist."""
        series = self._series.get((name, key))
        return 0 if series is None else series.total

    def spans(self, name: str, key: str, now_ms: int) -> BrokerStatsData | None:
        """A counter by its name; None if there is none, or nothing was ever counted."""
        series = self._series.get((name, key))
        return None if series is None else series.spans(now_ms)

    def tps(self, name: str, key: str, now_ms: int) -> float:
        """Per second over the last minute; 0 for a counter that does not exist."""
        spans = self.spans(name, key, now_ms)
        return 0.0 if spans is None else spans.stats_minute.tps

    def _day_of(self, time_ms: int) -> int:
        return (time_ms + self._zone(time_ms)) // _DAY_MS


class Series:
    """The history of one counter."""

    __slots__ = ("_samples", "is_kept", "times", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self.times = 0
        """How often it was added to; 0 where only the total is known."""
        self.is_kept = False
        """However long nothing is counted."""
        # Flat arrays: there may be 100,000 series, and lists would all be visited by the garbage
        # collector, which holds the loop for as long as that takes.
        self._samples = tuple(array("q", (now_ms, 0, 0)) for _ in _SPANS)

    def sample(self, now_ms: int) -> None:
        """Remember the total, in each span whose time has come."""
        for (interval_ms, most), samples in zip(_SPANS, self._samples, strict=True):
            if now_ms - samples[-_SAMPLE] >= interval_ms:
                samples.extend((now_ms, self.total, self.times))
                del samples[: -most * _SAMPLE]

    @property
    def is_idle(self) -> bool:
        """Whether nothing was counted for a day."""
        days = self._samples[-1]
        is_full = len(days) == _SPANS[-1][1] * _SAMPLE
        return not self.is_kept and is_full and days[1] == self.total

    def spans(self, now_ms: int) -> BrokerStatsData:
        """The last minute, hour and day, as far as they were watched."""
        minute, hour, day = (self._item(samples[:_SAMPLE], now_ms) for samples in self._samples)
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _item(self, since: Sequence[int], now_ms: int) -> BrokerStatsItem:
        since_ms, total, since_times = since
        count, times = self.total - total, self.times - since_times
        return BrokerStatsItem(
            sum=count,
            tps=_rate(count, now_ms - since_ms),
            avgpt=count / times if times else 0.0,
        )

    def recent_tps(self, now_ms: int) -> tuple[float, float, float]:
        """Per second over the last 10 s, minute and ten minutes."""
        minute, hour, _ = self._samples
        last = minute[-_SAMPLE:]
        if now_ms - last[0] < SAMPLE_MS / 2:
            last = minute[-2 * _SAMPLE :][:_SAMPLE]
        starts = (last, minute[:_SAMPLE], hour[-2 * _SAMPLE :][:_SAMPLE])
        ten_s, sixty_s, ten_min = (self._item(start, now_ms).tps for start in starts)
        return ten_s, sixty_s, ten_min


def _rate(count: int, elapsed_ms: int) -> float:
    return count * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0


class _Moves:
    """How far offsets have moved since the last look."""

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

    def take(
        self, rows: Offsets, size_of: SizeOf, *, new_starts_at_0: bool
    ) -> Generator[None, None, _Moved]:
        """What was added under each name, after a step for each row."""
        moved: _Moved = {}
        seen: dict[str, Mapping[int, int]] = {}
        for name, offsets in rows:
            seen[name] = offsets
            added = size = 0
            topic = name.partition("@")[0]
            for queue_id, first, end in self._steps(name, offsets, new_starts_at_0):
                added += end - first
                size += size_of(topic, queue_id, first, end)
            if added:
                moved[name] = added, size
            yield
        self._seen = seen
        return moved

    def _steps(
        self, name: str, offsets: Mapping[int, int], new_starts_at_0: bool
    ) -> Iterator[tuple[int, int, int]]:
        """Queue, old and new offset of all that moved on. A step back, after a reset, is none."""
        before = self._seen.get(name, {})
        for queue_id, offset in offsets.items():
            last = before.get(queue_id)
            if last is None:
                first = 0 if new_starts_at_0 else offset
                last = self._starts.pop((name, queue_id), first)
            if offset > last:
                yield queue_id, last, offset
