"""One task of a write: encode its rows, plan the sends, keep to the rate, send."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.spark.encode.row_encoder import UNSHARDED, EncodedRows, RowEncoder, RowKeys
from sparrowmq.spark.encode.row_properties import values_of
from sparrowmq.spark.schema import ColumnError, ColumnPlaces
from sparrowmq.spark.sink_options import SinkOptions
from sparrowmq.spark.wire.sender import RowSender, Send

ENCODED_BYTES = 16 * 1024 * 1024
"""About how much is encoded at once: Spark passes 10,000 rows, however large they are."""

MAX_ROWS_A_SEND = 8192

SENDS_A_SECOND = 10
"""Used under a rate limit, so that a second's rows do not come in one burst."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a task has sent."""

    rows: int
    sends: int
    body_bytes: int


def write_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    positions: ColumnPlaces,
    write_id: str,
    partition_id: int,
) -> Sent:
    """Send the rows of one partition. Raises RocketMQError: the task fails with its text."""
    rate = options.max_rows_per_second
    max_rows = MAX_ROWS_A_SEND if rate is None else max(1, int(rate / SENDS_A_SECOND))
    pace = WritePace(rate)
    encoder = RowEncoder(
        positions,
        options.topic,
        RowKeys(write_id, partition_id),
        options.max_message_bytes,
        shard_by_property=options.shard_by_property,
    )
    rows = sends = body_bytes = 0
    with options.cluster() as cluster:
        sender = RowSender(
            cluster,
            group=options.group,
            retry_timeout_s=options.retry_timeout_s,
            waits_for_topics=options.waits_for_topics,
            new_topic_queues=options.new_topic_queues,
        )
        limits = SendLimits(options.max_batch_bytes, min(max_rows, MAX_ROWS_A_SEND))
        plan = SendPlan(sender.queue_count, limits, first_turn=partition_id)
        for batch in bounded(batches):
            try:
                encoded = encoder.encode(batch)
            except ColumnError as error:
                raise error.after(rows) from error
            for send in plan.sends(encoded):
                pace.before(send.rows)
                sender.begin(send)
                rows += send.rows
                sends += 1
                body_bytes += len(send.body)
        sender.finish()
    return Sent(rows, sends, body_bytes)


def bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces small enough to be copied a few times; no piece without rows."""
    for batch in batches:
        rows = batch.num_rows
        pieces = max(1, -(-batch.nbytes // ENCODED_BYTES))
        step = max(1, -(-rows // pieces))
        for first in range(0, rows, step):
            yield batch.slice(first, step)


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How much goes into one send."""

    max_bytes: int
    max_rows: int


class SendPlan:
    """Which rows of one task go to which queue, and in which sends.

    Rows with a sharding key go to the queue of its hash, as with every other producer. The others
    take the queues in turn, row by row, so that a partition fills them evenly to within one row;
    the next Arrow batch continues with the following queue. The rows of a queue keep their order
    and go together, in as few sends as their size allows.
    """

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
            hashes = rows.hashes[chosen[first:last]].data if bound else ()
            if is_alone[first]:
                row = int(chosen[first])
                properties = rows.properties[row].as_py().decode()
                yield Send(topic, queue, bound, 1, rows.bodies[row].as_py(), properties, hashes)
            else:
                body = bytes(data[ends[first] : ends[last]])
                yield Send(topic, queue, bound, last - first, body, hashes=hashes)

    def _runs(
        self,
        queues: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        is_alone: npt.NDArray[np.bool_],
    ) -> Iterator[tuple[int, int]]:
        """The rows that go together, as first and last + 1."""
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


class WritePace:
    """Holds back sends that would exceed the rate."""

    def __init__(
        self,
        rows_per_second: float | None,
        elapsed_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rows_per_second
        self._elapsed_s = elapsed_s
        self._pause = pause
        self._due_s = elapsed_s()

    def before(self, rows: int) -> None:
        """Wait until this many rows may be sent."""
        if self._rate is None:
            return
        now_s = self._elapsed_s()
        # Unused time is lost: after a break there is no burst.
        self._due_s = max(self._due_s, now_s)
        if self._due_s > now_s:
            self._pause(self._due_s - now_s)
        self._due_s += rows / self._rate
