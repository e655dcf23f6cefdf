"""What came in and went out since the start, computed from the ends of queues and their units.

Messages are not counted as they pass. A look goes through all queues, in slices, and adds up what
each has gained since the last look: messages are exact, and so are bytes and sizes as long as the
units are in memory, as new ones are. Bytes that groups have consumed are estimated: their messages
times the mean size of the topic's messages.
"""

import msgspec
import numpy as np

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.monitoring.units import UNIT_BYTES, sizes
from sparrowmq.broker.statistics import GROUP_GET
from sparrowmq.metrics.families import MESSAGE_SIZE
from sparrowmq.metrics.text import Histogram, LoopSlices

_UNITS_AT_ONCE = 4096
_NEWEST = 32
"""Units of a queue that give the message size if no messages came since the start."""
_TYPES = {"FIFO": "fifo", "DELAY": "delay", "TRANSACTION": "transaction", "LITE": "lite"}


class TopicTraffic(msgspec.Struct):
    """Counts of what came into one topic."""

    messages: int = 0
    unsized: int = 0
    """Messages whose units could not be read at once; they count as having the mean size."""
    sizes: Histogram = msgspec.field(default_factory=lambda: Histogram(MESSAGE_SIZE.buckets))

    @property
    def mean_bytes(self) -> float:
        """The mean size of the messages; 0 if none was seen yet."""
        return self.sizes.total / max(1, self.messages - self.unsized)

    @property
    def bytes(self) -> int:
        """The bytes of all messages."""
        return round(self.sizes.total + self.unsized * self.mean_bytes)


class GroupTraffic(msgspec.Struct):
    """Counts of what one group has consumed of one topic."""

    messages: int = 0
    bytes: float = 0.0


class TrafficMetrics:
    """All topics and groups of a broker. `look` brings it up to date."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = {
            (topic, queue_id): broker.store.max_offset(topic, queue_id)
            for topic, queue_id in broker.store.queues()
        }
        """Where each queue ended at the last look."""
        self.topics: dict[str, TopicTraffic] = {}
        self.groups: dict[str, GroupTraffic] = {}
        """By `topic@group`."""

    async def look(self, pace: LoopSlices) -> None:
        """Add what came since the last look. Several may run at once: each step is atomic and works
        on the state of that moment."""
        store = self._broker.store
        queues = list(store.queues())
        for topic, queue_id in queues:
            place = (topic, queue_id)
            while (end := store.max_offset(topic, queue_id)) != self._ends.get(place, 0):
                self._take(topic, queue_id, end)
                await pace.rest()
            await pace.rest()
        if len(self._ends) > len(queues):
            self._forget_others(queues)
        await self._broker.sampling.refresh(self._broker)
        await self._follow_groups(pace)

    def _forget_others(self, queues: list[tuple[str, int]]) -> None:
        """Forget deleted topics, in one go because that is rare."""
        for gone in self._ends.keys() - set(queues):
            del self._ends[gone]
        for topic in self.topics.keys() - {topic for topic, _ in queues}:
            del self.topics[topic]

    def _take(self, topic: str, queue_id: int, end: int) -> None:
        """Count some units of a queue, up to `end`."""
        first = self._ends.get((topic, queue_id), 0)
        low = self._broker.store.min_offset(topic, queue_id)
        traffic = self.topics.setdefault(topic, TopicTraffic())
        if not low <= first <= end:  # the topic was recreated, or expired faster than we looked
            begin = 0 if first > end else first
            traffic.messages += max(0, low - begin)
            traffic.unsized += max(0, low - begin)
            first = min(max(low, begin), end)
        units = self._broker.store.units_at_once(
            topic, queue_id, first, min(_UNITS_AT_ONCE, end - first)
        )
        found = sizes(units or b"")
        count = len(units) // UNIT_BYTES if units else end - first
        traffic.messages += count
        traffic.unsized += count - len(found)
        traffic.sizes.total += int(found.sum())
        places = np.searchsorted(np.array(MESSAGE_SIZE.buckets), found)
        for place, many in zip(*np.unique(places, return_counts=True), strict=True):
            traffic.sizes.counts[place] += int(many)
        self._ends[topic, queue_id] = first + count

    async def _follow_groups(self, pace: LoopSlices) -> None:
        statistics = self._broker.statistics
        keys = statistics.keys(GROUP_GET)
        for key in keys:
            traffic = self.groups.setdefault(key, GroupTraffic())
            messages = statistics.total(GROUP_GET, key)
            more = messages - traffic.messages
            if more > 0:
                traffic.bytes += more * self._mean_bytes(key.partition("@")[0])
            traffic.messages = messages
            await pace.rest()
        if len(self.groups) > len(keys):
            for gone in self.groups.keys() - set(keys):
                del self.groups[gone]

    def _mean_bytes(self, topic: str) -> float:
        """The mean size of the topic's messages: of those that came, or else of the newest ones."""
        traffic = self.topics.get(topic)
        if traffic is not None and traffic.mean_bytes:
            return traffic.mean_bytes
        store = self._broker.store
        config = self._broker.topics.get(topic)
        found = [
            sizes(store.units_at_once(topic, queue_id, max(low, high - _NEWEST), _NEWEST) or b"")
            for queue_id in range(0 if config is None else config.read_queue_nums)
            for low, high in [store.queue_range(topic, queue_id)]
        ]
        newest = np.concatenate(found) if found else np.array([])
        return float(newest.mean()) if len(newest) else 0.0


def message_type(broker: Broker, topic: str) -> str:
    """The type under Apache's name. It is the topic's: without a type, messages are normal."""
    config = broker.topics.get(topic)
    declared = "" if config is None else config.attributes.get("message.type", "")
    return _TYPES.get(declared, "normal")
