"""Offsets of many queues: converted to JSON, limited fairly, cut into ranges for tasks.

A Spark offset maps every queue to its next offset, so ends are exclusive:

    {"orders": {"broker-a": {"0": 17, "1": 4}}}
"""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple, TypeAlias

from sparrowmq.spark.wire.cluster import UNKNOWN_EPOCH, Queue

EARLIEST = "earliest"
LATEST = "latest"
EARLIEST_MARK = -2
LATEST_MARK = -1

NestedOffsets: TypeAlias = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Topic to broker name to queue id to offset, as people write it."""
Assignment: TypeAlias = Mapping[str, Mapping[str, tuple[int, ...]]]
"""Topic to broker name to queue ids."""
Offsets: TypeAlias = dict[Queue, int]

_SHAPE = '{"orders": {"broker-a": {"0": 17}}}'


class QueueRange(NamedTuple):
    """A piece of a queue: from `start` up to, but not including, `end`."""

    queue: Queue
    start: int
    end: int
    epoch: int = UNKNOWN_EPOCH
    """The epoch in which the end was learned; the start was valid then."""

    @property
    def size(self) -> int:
        """How many messages, including deleted and filtered ones."""
        return self.end - self.start


def to_json(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """The offsets as Spark stores them, in a fixed order."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def from_json(nested: Mapping[str, Any]) -> Offsets:
    """Read what `to_json` made; keys that begin with `$` are remarks and are skipped."""
    return {
        Queue(topic, broker_name, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        if not topic.startswith("$")
        for broker_name, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def read_offsets(text: str, *, least: int) -> NestedOffsets:
    """Read an option's JSON, without remarks. Raises ValueError that shows the expected shape."""
    try:
        nested = json.loads(text)
        found = {
            topic: {
                broker: {int(queue_id): _whole(value) for queue_id, value in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in nested.items()
            if not topic.startswith("$")
        }
    except (ValueError, AttributeError, TypeError):
        words = "earliest, latest or " if least < 0 else ""
        raise ValueError(f"must be {words}JSON like {_SHAPE}") from None
    for brokers in found.values():
        for queues in brokers.values():
            for value in queues.values():
                if value < least:
                    raise ValueError(f"has {value} in it, at least {least} is allowed")
    return found


def read_assignment(text: str) -> Assignment:
    """Read the JSON of the option assign. Raises ValueError that shows the expected shape."""
    try:
        nested = json.loads(text)
        found = {
            topic: {broker: tuple(map(_whole, ids)) for broker, ids in brokers.items()}
            for topic, brokers in nested.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError('must be JSON like {"orders": {"broker-a": [0, 1]}}') from None
    if not any(ids for brokers in found.values() for ids in brokers.values()):
        raise ValueError("must name a queue")
    return found


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def flat(nested: NestedOffsets) -> Offsets:
    """Nested offsets as one dictionary by queue."""
    return {
        Queue(topic, broker_name, queue_id): value
        for topic, brokers in nested.items()
        for broker_name, queues in brokers.items()
        for queue_id, value in queues.items()
    }


def backlog(start: Offsets, end: Offsets) -> int:
    """Messages between two sets of offsets; a queue missing from one counts from 0."""
    return sum(max(0, last - start.get(queue, 0)) for queue, last in end.items())


def share_out(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Ends for at most `limit` messages, shared among queues in proportion to their backlog.

    Every queue with a backlog gets at least one message, as long as the limit allows, so that a
    huge queue does not starve a small one.
    """
    waiting = {queue: max(0, last - start.get(queue, 0)) for queue, last in end.items()}
    total = sum(waiting.values())
    if total <= limit:
        return dict(end)
    shares = {queue: size * limit // total for queue, size in waiting.items()}
    left = limit - sum(shares.values())
    # What rounding left over goes to queues that got nothing, then to the longest.
    for queue in sorted(waiting, key=lambda queue: (shares[queue] > 0, -waiting[queue], queue)):
        if left and shares[queue] < waiting[queue]:
            shares[queue] += 1
            left -= 1
    return {
        queue: min(last, start.get(queue, 0) + shares[queue]) if waiting[queue] else last
        for queue, last in end.items()
    }


def split(
    ranges: Iterable[QueueRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[QueueRange]:
    """The pieces that tasks read: none longer than `max_records`, and at least `min_partitions` of
    them where there are that many messages. Without either, one per queue.
    """
    wanted = [found for found in ranges if found.size > 0]
    if max_records is not None:
        wanted = [
            piece for found in wanted for piece in _cut(found, ceil(found.size / max_records))
        ]
    if min_partitions is None or len(wanted) >= min_partitions:
        return wanted
    total = sum(found.size for found in wanted)
    return [
        piece
        for found in wanted
        for piece in _cut(found, ceil(found.size / total * min_partitions))
    ]


def _cut(found: QueueRange, pieces: int) -> list[QueueRange]:
    pieces = max(1, min(pieces, found.size))
    bounds = [found.start + found.size * place // pieces for place in range(pieces + 1)]
    return [found._replace(start=first, end=last) for first, last in pairwise(bounds)]
