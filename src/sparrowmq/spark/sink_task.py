"""What one task of a write does: encode its rows, send them, keep to the rate."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparrowmq.spark.routes import Cluster
from sparrowmq.spark.row_encode import RowEncoder
from sparrowmq.spark.row_key import RowKeys
from sparrowmq.spark.row_schema import Positions
from sparrowmq.spark.sender import Sender
from sparrowmq.spark.sink_options import SinkOptions
from sparrowmq.spark.sink_plan import SendLimits, SendPlan

ENCODED_BYTES = 16 * 1024 * 1024
"""About so much is encoded at once: Spark hands over 10,000 rows, however large they are."""
MAX_ROWS_A_SEND = 8192
SENDS_A_SECOND = 10
"""Under a rate limit, so that a second's rows do not come in one burst."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a task has sent."""

    rows: int
    sends: int
    body_bytes: int


class Pace:
    """Holds back what would be faster than the rate."""

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
        """Wait until so many rows may be sent."""
        if self._rate is None:
            return
        now_s = self._elapsed_s()
        # Time that was not used is gone: after a break there is no burst.
        self._due_s = max(self._due_s, now_s)
        if self._due_s > now_s:
            self._pause(self._due_s - now_s)
        self._due_s += rows / self._rate


def write_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    positions: Positions,
    write_id: str,
    partition_id: int,
) -> Sent:
    """Send the rows of one partition. Raises RocketMQError: the task fails with its text."""
    rate = options.max_rows_per_second
    max_rows = MAX_ROWS_A_SEND if rate is None else max(1, int(rate / SENDS_A_SECOND))
    pace = Pace(rate)
    encoder = RowEncoder(
        positions, options.topic, RowKeys(write_id, partition_id), options.max_message_bytes
    )
    rows = sends = body_bytes = 0
    with Cluster(options.name_server, options.request_timeout_s) as cluster:
        sender = Sender(
            cluster,
            group=options.group,
            retry_timeout_s=options.retry_timeout_s,
            waits_for_topics=options.waits_for_topics,
        )
        limits = SendLimits(options.max_batch_bytes, min(max_rows, MAX_ROWS_A_SEND))
        plan = SendPlan(sender.queue_count, limits, first_turn=partition_id)
        for batch in bounded(batches):
            for send in plan.sends(encoder.encode(batch)):
                pace.before(send.rows)
                sender.begin(send)
                rows += send.rows
                sends += 1
                body_bytes += len(send.body)
        sender.finish()
    return Sent(rows, sends, body_bytes)


def bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of a size that can be copied a few times; none without rows."""
    for batch in batches:
        rows = batch.num_rows
        pieces = max(1, -(-batch.nbytes // ENCODED_BYTES))
        step = max(1, -(-rows // pieces))
        for first in range(0, rows, step):
            yield batch.slice(first, step)
