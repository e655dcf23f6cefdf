"""The stream reader: what Spark calls for each micro-batch, and the consumer group's progress.

    latestOffset(start) ── the batch before is committed ──▶ progress of the group := start
         │ end
    partitions(start, end) ── tasks read and write ── Spark commits ──▶ commit(end): progress := end

Progress is stored at the brokers only for what Spark has committed: `start` of a new batch is the
end of a committed one, and `commit` comes after Spark wrote its commit log. Neither alone is
enough: `commit` comes one batch late and not for the last batch of an availableNow run.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparrowmq.spark.offsets import (
    LATEST,
    Offsets,
    QueueRange,
    backlog,
    from_json,
    share_out,
    to_json,
)
from sparrowmq.spark.options import Options
from sparrowmq.spark.outage import Patience
from sparrowmq.spark.puller import read_range
from sparrowmq.spark.routes import Cluster
from sparrowmq.spark.schema import Column
from sparrowmq.spark.source import Piece, pieces
from sparrowmq.spark.source_plan import find_queues, resolve
from sparrowmq.spark.stream_group import GroupProgress
from sparrowmq.spark.stream_plan import latest_offsets

if TYPE_CHECKING:
    import pyarrow as pa

LAG = "$lag"
"""Beside the topics in the latest offset that query progress shows: messages not read yet."""

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches over the queues that the options name."""

    def __init__(
        self,
        options: Options,
        columns: tuple[Column, ...],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.columns = columns
        self._now = now
        self._patience = Patience(options.retry_timeout_s)
        self._cluster = Cluster(options.name_server, options.request_timeout_s)
        self._progress = GroupProgress(self._cluster, options.group)
        self._latest: Offsets = {}
        self._end: Offsets = {}
        self._target: Offsets | None = None
        """Where an availableNow run ends."""
        self._last_trigger_s: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        return to_json(self._patience.call("finding where to start", self._initial))

    def _initial(self) -> Offsets:
        queues = find_queues(self._cluster, self.options)
        at = self.options.starting
        return resolve(self._cluster, queues, at, "startingOffsets", default=LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options limit a micro-batch to."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything up to now, and nothing later."""
        self._target = self._patience.call("finding where to end", self._everything)

    def _everything(self) -> Offsets:
        queues = find_queues(self._cluster, self.options)
        return {queue: self._cluster.max_offset(queue) for queue in queues}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` when there is none."""
        begin = from_json(start)
        self._progress.commit(begin)
        begin, self._latest = self._patience.call(
            "looking for new messages", lambda: self._known_and_latest(begin)
        )
        waiting = backlog(begin, self._latest)
        if not isinstance(limit, ReadAllAvailable) and self._has_to_wait(waiting):
            self._end = begin
            return start  # word for word: anything else would be a new batch
        self._last_trigger_s = self._now()
        self._end = self._latest
        if isinstance(limit, ReadMaxRows):
            self._end = share_out(begin, self._latest, limit.max_rows)
        return to_json(self._end)

    def _known_and_latest(self, begin: Offsets) -> tuple[Offsets, Offsets]:
        latest = latest_offsets(self._cluster, self.options, begin, self._target)
        # New queues start at their oldest message: what they hold is backlog, all of it.
        new = {queue: self._cluster.min_offset(queue) for queue in latest if queue not in begin}
        return begin | new, latest

    def _has_to_wait(self, waiting: int) -> bool:
        least = self.options.min_offsets_per_trigger
        # An availableNow run has to end, and a query that just started need not wait.
        if least is None or self._target is not None or self._last_trigger_s is None:
            return False
        delay_s = self._now() - self._last_trigger_s
        return waiting < least and delay_s < self.options.max_trigger_delay_s

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the queues are written, and how many messages that is beyond this batch."""
        if not self._latest:
            return None
        return {**to_json(self._latest), LAG: backlog(self._end, self._latest)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        return self._patience.call(
            "planning the micro-batch", lambda: self._plan(from_json(start), from_json(end))
        )

    def _plan(self, begin: Offsets, end: Offsets) -> list[InputPartition]:
        for topic in sorted({queue.topic for queue in end}):
            self._cluster.known_route(topic)
        ranges = [
            QueueRange(queue, self._start_of(begin, queue, last), last)
            for queue, last in sorted(end.items())
        ]
        return list(pieces(self._cluster, ranges, self.options))

    def _start_of(self, begin: Offsets, queue: Any, last: int) -> int:
        first = begin.get(queue)
        # Unknown before: a new queue. Behind its end: the topic was made anew (see stream_plan).
        if first is None or first > last:
            return self._cluster.min_offset(queue)
        return first

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The messages of one piece."""
        assert isinstance(partition, Piece)
        return read_range(partition.range, self.options, self.columns, address=partition.address)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything before `end`."""
        self._progress.commit(from_json(end))

    def stop(self) -> None:
        """The query ends."""
        self._cluster.close()
