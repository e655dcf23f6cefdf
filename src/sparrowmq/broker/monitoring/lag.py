"""The lag of consumer groups: in messages from offsets, in time from samples.

```
queue    ───────────c═══════════p───────────────e    c committed, p pulled, e end
                    │ inflight  │     ready     │
                    │            lag            │
```

Offsets give these counts at once. When the first waiting message was stored, and how many of the
waiting ones pass a tag filter, has to be read, so a loop samples both in the background; a scrape
only combines the sample with the current offsets. A queue whose offset has not moved is not read
again.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.monitoring.units import UNIT_BYTES, Numbers, count_tags, first_log_offset
from sparrowmq.metrics.text import LoopSlices
from sparrowmq.protocol.names import is_retry_topic, is_system_group, is_system_topic
from sparrowmq.protocol.record_layout import STORE_TIMESTAMP_BYTES, store_timestamp
from sparrowmq.protocol.subscription import SubscriptionData
from sparrowmq.store.store import ColdRead

SAMPLE_S = 15.0
MOST_COUNTED = 20_000
"""Waiting messages of a queue whose tags are checked; the rest is extrapolated, as in Apache's
broker (estimateAccumulation)."""
_COLD_READS = 32
"""Reads from the device in one round; the others are left for later rounds."""

Place = tuple[str, int]
"""`topic@group` and the queue's id."""


class SampledQueueLag(NamedTuple):
    """One queue of one group. Times are store times in ms, None if they are not known."""

    queue_id: int
    lag: int
    ready: int
    oldest_ms: int | None
    oldest_ready_ms: int | None


class SampledGroupLag(NamedTuple):
    """One group in one topic."""

    labels: tuple[str, str, str, str]
    """consumer_group, is_retry, is_system, topic."""
    queues: list[SampledQueueLag]
    lag: int
    """Messages that were not consumed yet."""
    ready: int
    """Those of them that were not pulled yet."""
    latency_ms: int | None
    """The age of the oldest unconsumed message; None if not known yet."""
    queueing_ms: int | None
    """The age of the oldest message that was not pulled."""


def _of_group(
    group: str, topic: str, queues: list[SampledQueueLag], now_ms: int
) -> SampledGroupLag:
    is_system = is_system_topic(topic) or is_system_group(group)
    lag, ready = sum(queue.lag for queue in queues), sum(queue.ready for queue in queues)
    return SampledGroupLag(
        (group, _word(is_retry_topic(topic)), _word(is_system), topic),
        queues,
        lag,
        ready,
        latency_ms=_age(lag, (queue.oldest_ms for queue in queues), now_ms),
        queueing_ms=_age(ready, (queue.oldest_ready_ms for queue in queues), now_ms),
    )


def _age(waiting: int, stored: Iterator[int | None], now_ms: int) -> int | None:
    if not waiting:
        return 0
    known = [time for time in stored if time is not None]
    return max(0, now_ms - min(known)) if known else None


def _word(value: bool) -> str:
    return "true" if value else "false"


class _Seen(NamedTuple):
    """When the message at an offset was stored."""

    offset: int
    stored_ms: int


class LagSamples:
    """What the background loop has learned."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Place, _Seen] = {}
        self._unpulled: dict[Place, _Seen] = {}
        self._passing: dict[Place, float] = {}
        """The fraction of the waiting messages that passes a group's tag filter."""
        self._cold_left = 0

    async def run(self) -> None:
        """Sample forever."""
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Read what offsets do not say, for all groups, in slices."""
        pace = LoopSlices()
        self._cold_left = _COLD_READS
        places = set()
        offsets = self._broker.offsets
        for key in offsets.row_names():
            topic, _, group = key.partition("@")
            tags = self._tags(group, topic)
            for queue_id, committed in offsets.row(key).items():
                place = (key, queue_id)
                places.add(place)
                low, end = self._broker.store.queue_range(topic, queue_id)
                first = max(low, committed)
                await self._note(self._waiting, place, first, end)
                pulled = self._broker.offsets.pulled.get((group, topic, queue_id), first)
                await self._note(self._unpulled, place, max(first, pulled), end)
                if tags is not None and first < end:
                    await self._count(place, first, end, tags, pace)
                else:
                    self._passing.pop(place, None)
                await pace.rest()
        tables: tuple[dict[Place, Any], ...] = (self._waiting, self._unpulled, self._passing)
        for table in tables:
            for place in list(table):
                if place not in places:
                    table.pop(place, None)
                await pace.rest()

    def _tags(self, group: str, topic: str) -> Numbers | None:
        live = self._broker.consumers.group(group)
        subscribed = None if live is None else live.subscriptions.get(topic)
        return None if subscribed is None else _codes(subscribed)

    async def _note(self, table: dict[Place, _Seen], place: Place, offset: int, end: int) -> None:
        seen = table.get(place)
        if offset >= end:
            table.pop(place, None)
        elif seen is None or seen.offset != offset:
            stored_ms = await self._stored_ms(place, offset)
            if stored_ms is not None:
                table[place] = _Seen(offset, stored_ms)

    async def _stored_ms(self, place: Place, offset: int) -> int | None:
        """The store time of a message; None if it is gone, or left for a later round."""
        topic = place[0].partition("@")[0]
        store = self._broker.store
        units = store.units_at_once(topic, place[1], offset, 1)
        log_offset = None if units is None else first_log_offset(units)
        if log_offset is not None:
            head = store.read_log_at_once(log_offset, STORE_TIMESTAMP_BYTES)
            if head is not None:
                return _time_in(head)
        if self._cold_left <= 0:
            return None
        self._cold_left -= 1
        found = store.read_queue(topic, place[1], offset, max_count=1)
        if isinstance(found, ColdRead):
            found = await self._broker.workers.run(found.load)
        return _time_in(bytes(found.chunks[0][:STORE_TIMESTAMP_BYTES])) if found.chunks else None

    async def _count(
        self, place: Place, first: int, end: int, tags: Numbers, pace: LoopSlices
    ) -> None:
        topic = place[0].partition("@")[0]
        looked = passing = 0
        last = min(end, first + MOST_COUNTED)
        while first < last:
            units = self._broker.store.units_at_once(topic, place[1], first, last - first)
            if not units:  # not in memory: the last sample stays
                break
            count = len(units) // UNIT_BYTES
            looked, passing = looked + count, passing + count_tags(units, tags)
            first += count
            await pace.rest()
        if looked:
            self._passing[place] = passing / looked

    async def groups(self, pace: LoopSlices) -> list[SampledGroupLag]:
        """Every group in every topic, by the current offsets."""
        found = []
        now_ms = self._broker.clock()
        offsets = self._broker.offsets
        for key in offsets.row_names():
            topic, _, group = key.partition("@")
            queues = [self._queue(key, group, topic, *item) for item in offsets.row(key).items()]
            if queues:
                found.append(_of_group(group, topic, queues, now_ms))
            await pace.rest()
        return found

    def _queue(
        self, key: str, group: str, topic: str, queue_id: int, committed: int
    ) -> SampledQueueLag:
        low, end = self._broker.store.queue_range(topic, queue_id)
        first = max(low, committed)
        pulled = self._broker.offsets.pulled.get((group, topic, queue_id), first)
        place = (key, queue_id)
        passing = self._passing.get(place, 1.0)
        waiting, unpulled = self._waiting.get(place), self._unpulled.get(place)
        return SampledQueueLag(
            queue_id,
            lag=round(max(0, end - first) * passing),
            ready=round(max(0, end - max(first, pulled)) * passing),
            oldest_ms=None if waiting is None or first >= end else waiting.stored_ms,
            oldest_ready_ms=None if unpulled is None else unpulled.stored_ms,
        )


def _time_in(head: bytes) -> int | None:
    return store_timestamp(head) if len(head) == STORE_TIMESTAMP_BYTES else None


def _codes(subscribed: SubscriptionData) -> Numbers | None:
    """The tag codes of a subscription; None if it takes everything, or filters by SQL, which cannot
    be judged by a unit."""
    if not subscribed.is_tag or subscribed.takes_all:
        return None
    return np.array(sorted(subscribed.code_set), dtype=np.int64)
