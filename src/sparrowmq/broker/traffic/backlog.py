"""Backlog limits: sends to a topic are refused or slowed while a named group is too far behind.

Every second each named group is checked and the topic's state updated; a send only reads that
state. A group counts only while it certainly should be consuming: one forgotten or broken group
must not stop a topic's producers.

    accepted ── a group reaches the limit ─▶ refused or slowed ── all are down to 80 % ─▶ accepted
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrowmq.broker.stored_times import Place, stored_times
from sparrowmq.broker.traffic.meter import Refusals
from sparrowmq.net.slices import Slice
from sparrowmq.protocol.limits import Backlog

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

ABSENT_MS = 600_000
"""A group without members for this long does not count."""
LONGEST_HOLD_S = 1.0
_SHORTEST_HOLD_S = 0.1


@dataclass(slots=True)
class BacklogState:
    """The backlog limit of one topic, and how far its groups are behind."""

    limit: Backlog
    is_over: bool = False
    lags: dict[str, int] = field(default_factory=dict)
    """How far each group that counts is behind, in the limit's unit."""
    uncounted: dict[str, str] = field(default_factory=dict)
    """Why the others do not count."""
    since_ms: int = 0
    """When the backlog exceeded the limit, by the monotonic clock."""
    refusals: Refusals = field(default_factory=Refusals)
    minute: list[int] = field(default_factory=lambda: [0])
    """Refusals in total, in each of the last 60 seconds."""

    @property
    def worst(self) -> tuple[str, int]:
        """The group that is furthest behind, and how far."""
        group = max(self.lags, key=self.lags.__getitem__, default="")
        return group, self.lags.get(group, 0)

    @property
    def hold_s(self) -> float:
        """How long answers are held: the longer, the further a group is behind."""
        return hold_s(self.limit.most, self.worst[1])

    @property
    def refused_last_minute(self) -> int:
        """Messages that were refused or, if sends are slowed, answers that were held."""
        return self.refusals.total - self.minute[0]

    def judge(self, lags: Mapping[str, int], uncounted: Mapping[str, str], now_ms: int) -> bool:
        """Process the result of a look; returns whether that changed what happens to sends."""
        self.lags, self.uncounted = dict(lags), dict(uncounted)
        self.minute = [*self.minute[-59:], self.refusals.total]
        was_over = self.is_over
        self.is_over = is_over(self.limit.most, self.worst[1], was_over=was_over)
        if self.is_over and not was_over:
            self.since_ms = now_ms
        return self.is_over != was_over

    def refusal(self, topic: str) -> str:
        """Why a send is refused."""
        group, lag = self.worst
        unit = "s" if self.limit.is_time else "messages"
        return (
            f"group {group} is {lag:,} {unit} behind in topic {topic}, at most"
            f" {self.limit.limit_text} are allowed: sends are refused until it is at"
            f" {self.limit.most * 4 // 5:,} {unit}; come back in 1,000 ms"
        )


def is_over(most: int, lag: int, *, was_over: bool) -> bool:
    """Whether a backlog is over the limit: from the limit on, until it is down to 80 %."""
    return lag * 5 > most * 4 if was_over else lag >= most


def hold_s(most: int, lag: int) -> float:
    """From a tenth of a second at 80 % of the limit to a second at the limit and beyond."""
    part = (lag * 5 - most * 4) / most
    return min(LONGEST_HOLD_S, max(_SHORTEST_HOLD_S, part * LONGEST_HOLD_S))


class Presence:
    """When each group last had a member."""

    def __init__(self) -> None:
        self._seen_ms: dict[str, int] = {}

    def why_uncounted(self, broker: "Broker", group: str, topic: str) -> str:
        """Why a group does not count; empty if it does."""
        config, live = broker.groups.get(group), broker.consumers.group(group)
        now_ms = broker.monotonic()
        if live is not None and live.members:
            self._seen_ms[group] = now_ms
        if config is None:
            return "it does not exist"
        if not config.consume_enable or not broker.groups.is_readable(group, topic):
            return "it is paused"
        if live is not None and live.is_broadcasting:
            return "it is broadcasting"
        seen_ms = self._seen_ms.get(group)
        if seen_ms is None:
            return "no member was seen since this broker began to watch the limit"
        if now_ms - seen_ms >= ABSENT_MS:
            return f"it had no member for {ABSENT_MS // 60_000} minutes"
        return ""


async def look(
    broker: "Broker", topic: str, limit: Backlog, presence: Presence, turn: Slice
) -> tuple[dict[str, int], dict[str, str]]:
    """How far the groups that count are behind, and why the others do not count."""
    lags: dict[str, int] = {}
    uncounted: dict[str, str] = {}
    for group in limit.groups:
        why = presence.why_uncounted(broker, group, topic)
        if why:
            uncounted[group] = why
            continue
        waiting = _waiting(broker, group, topic)
        if limit.is_time:
            lags[group] = await _behind_s(broker, topic, waiting, turn)
        else:
            lags[group] = sum(end - first for first, end in waiting.values())
        if turn.is_over:
            await turn.pause()
    return lags, uncounted


def _waiting(broker: "Broker", group: str, topic: str) -> dict[int, tuple[int, int]]:
    """Queue → start and end of what a group has not consumed. Queues in which it never committed
    anything say nothing about the group."""
    found = {}
    for queue_id, committed in broker.offsets.row(f"{topic}@{group}").items():
        low, end = broker.store.queue_range(topic, queue_id)
        first = max(low, committed)
        if first < end:
            found[queue_id] = (first, end)
    return found


async def _behind_s(
    broker: "Broker", topic: str, waiting: Mapping[int, tuple[int, int]], turn: Slice
) -> int:
    """How long ago the oldest waiting message was stored, however the clock was set since."""
    places: list[Place] = [(topic, queue_id, first) for queue_id, (first, _) in waiting.items()]
    clock, oldest_ms = broker.delivery.clock, 0
    for place, stored_ms in zip(places, await stored_times(broker, places, turn), strict=True):
        if stored_ms >= 0:
            set_ms = _set_since(broker, place) if clock.was_set else 0
            oldest_ms = max(oldest_ms, clock.now_ms() - stored_ms - set_ms)
    return oldest_ms // 1000


def _set_since(broker: "Broker", place: Place) -> int:
    for log_offset, _, _ in broker.store.units(*place, 1):
        return broker.delivery.clock.since(log_offset)
    return 0
