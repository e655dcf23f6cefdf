"""Which rows go to which queue, and in which sends.

Rows with a sharding key go to the queue of its hash, as from every other producer. The others take
the queues in turn, row by row, so that a partition fills them evenly to one row. The rows of a
queue stay in their order and go together, in as few sends as their size allows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparrowmq.spark.row_encode import UNSHARDED, EncodedRows
from sparrowmq.spark.row_properties import values_of


@dataclass(frozen=True, slots=True)
class Send:
    """One request: a batch of rows, or one row that cannot go in a batch."""

    topic: str
    queue: int
    """The place in the topic's list of queues."""
    is_bound: bool
    """Whether a sharding key wants this queue and no other."""
    rows: int
    body: bytes
    properties: str | None = None
    """Of a single row; None for a batch, whose rows carry their own."""


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How much goes into one send."""

    max_bytes: int
    max_rows: int


class SendPlan:
    """Plans the sends of one task; goes on with the next queue where the last batch ended."""

    def __init__(
        self, queue_count: Callable[[str], int], limits: SendLimits, first_turn: int
    ) -> None:
        self._queue_count = queue_count
        self._limits = limits
        self._first_turn = first_turn
        self._turns: dict[str, int] = {}

    def sends(self, rows: EncodedRows) -> Iterator[Send]:
        """All rows as sends."""
        for at, topic in enumerate(rows.topics):
            chosen = np.flatnonzero(rows.topic_of == at)
            queues = self._queues(topic, rows.hashes[chosen])
            order = np.argsort(queues, kind="stable")
            yield from self._of_topic(rows, topic, chosen[order], queues[order])

    def _queues(self, topic: str, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Each row's queue."""
        count = self._queue_count(topic)
        queues = hashes % count
        free = np.flatnonzero(hashes == UNSHARDED)
        turn = self._turns.get(topic, self._first_turn)
        queues[free] = (turn + np.arange(len(free))) % count
        self._turns[topic] = (turn + len(free)) % count
        return queues

    def _of_topic(
        self,
        rows: EncodedRows,
        topic: str,
        chosen: npt.NDArray[np.int64],
        queues: npt.NDArray[np.int64],
    ) -> Iterator[Send]:
        """The sends of one topic's rows, given in the order of their queues."""
        messages = rows.messages.take(chosen)
        data, ends = values_of(messages)
        is_alone = rows.alone[chosen] | (np.diff(ends) > self._limits.max_bytes)
        is_bound = rows.hashes[chosen] != UNSHARDED
        for first, last in self._runs(queues, ends, is_alone):
            queue, bound = int(queues[first]), bool(is_bound[first:last].any())
            if is_alone[first]:
                row = int(chosen[first])
                properties = rows.properties[row].as_py().decode()
                yield Send(topic, queue, bound, 1, rows.bodies[row].as_py(), properties)
            else:
                body = bytes(data[ends[first] : ends[last]])
                yield Send(topic, queue, bound, last - first, body)

    def _runs(
        self,
        queues: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        is_alone: npt.NDArray[np.bool_],
    ) -> Iterator[tuple[int, int]]:
        """First and last + 1 of the rows that go together."""
        # A run ends where the queue changes, and around each row that goes alone.
        changes = (np.diff(queues) != 0) | is_alone[1:] | is_alone[:-1]
        stops = [*(np.flatnonzero(changes) + 1).tolist(), len(queues)]
        first = 0
        for stop in stops:
            while first < stop:
                limit = int(np.searchsorted(ends, ends[first] + self._limits.max_bytes, "right"))
                last = max(first + 1, min(limit - 1, stop, first + self._limits.max_rows))
                yield first, last
                first = last
