"""The stream reader: what Spark calls for each micro-batch.

    latestOffset(start) ── the batch before is committed ──▶ progress of the group := start
         │ end
    partitions(start, end) ── tasks read and write ── Spark commits ──▶ commit(end): progress := end

Progress is stored at the brokers only for what Spark has committed: `start` of a new batch is the
end of a committed one, and `commit` comes after Spark wrote its commit log. Neither alone is
enough: `commit` comes one batch late and not for the last batch of an availableNow run.
"""

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

from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.group_progress import GroupProgress
from sparrowmq.spark.offsets import LATEST, QueueRange, backlog, share_out
from sparrowmq.spark.offsets import to_json as offsets_to_json
from sparrowmq.spark.options import Options
from sparrowmq.spark.positions import (
    Positions,
    ends_now,
    from_json,
    lowered,
    offsets_of,
    to_json,
)
from sparrowmq.spark.read_plan import (
    Reach,
    find_queues,
    queues_at_start,
    reach,
    reach_again,
    resolve,
)
from sparrowmq.spark.schema import SparkColumn
from sparrowmq.spark.source import Piece, pieces
from sparrowmq.spark.wire.puller import read_range
from sparrowmq.spark.wire.remoting import Patience
from sparrowmq.spark.worker_errors import reported_by_text

if TYPE_CHECKING:
    import pyarrow as pa


LAG = "$lag"
"""Key next to the topics in the latest offset that query progress shows: messages not read yet."""


@reported_by_text
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches over the queues that the options name."""

    def __init__(
        self,
        options: Options,
        columns: tuple[SparkColumn, ...],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.columns = columns
        self._now = now
        self._patience = Patience(options.retry_timeout_s)
        self._cluster = options.cluster()
        self._progress = GroupProgress(self._cluster, options.group)
        self._latest: Positions = {}
        self._begin: Positions = {}
        """Where the batch planned last begins, and the ranges that it reads."""
        self._reach = Reach({}, {})
        self._target: Positions | None = None
        """Where an availableNow run ends."""
        self._last_trigger_s: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        return to_json(self._patience.call("finding where to start", self._initial))

    def _initial(self) -> Positions:
        queues = queues_at_start(self._cluster, self.options)
        at = self.options.starting
        return resolve(self._cluster, queues, at, "startingOffsets", default=LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a micro-batch that the options set."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything up to now, and nothing later."""
        self._target = self._patience.call("finding where to end", self._everything)

    def _everything(self) -> Positions:
        return ends_now(self._cluster, find_queues(self._cluster, self.options))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` when there is none."""
        begin = from_json(start)
        self._progress.commit(begin)
        starts, latest = self._patience.call(
            "looking for new messages",
            lambda: reach(self._cluster, self.options, begin, self._target),
        )
        self._latest = latest
        waiting = backlog(offsets_of(starts), offsets_of(latest))
        if not isinstance(limit, ReadAllAvailable) and self._has_to_wait(waiting):
            self._begin, self._reach = begin, Reach(begin, begin)
            # Exactly as given: to Spark, anything else is a new batch.
            return start
        self._last_trigger_s = self._now()
        end = latest
        if isinstance(limit, ReadMaxRows):
            shares = share_out(offsets_of(starts), offsets_of(latest), limit.max_rows)
            end = lowered(latest, shares)
        self._begin, self._reach = begin, Reach(starts, end)
        return to_json(end)

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
        latest = offsets_of(self._latest)
        lag = backlog(offsets_of(self._reach.ends), latest)
        return {**offsets_to_json(latest), LAG: lag}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        return self._patience.call(
            "planning the micro-batch", lambda: self._plan(from_json(start), from_json(end))
        )

    def _plan(self, begin: Positions, end: Positions) -> list[InputPartition]:
        for topic in sorted({queue.topic for queue in end}):
            self._cluster.known_route(topic)
        planned = self._reach
        if (begin, end) != (self._begin, planned.ends):
            # Planned by an earlier run: queues may have been cut or created again since.
            planned = reach_again(self._cluster, self.options, begin, end)
        ranges = [
            QueueRange(queue, planned.starts[queue].offset, last.offset, last.epoch)
            for queue, last in sorted(planned.ends.items())
        ]
        return list(pieces(self._cluster, ranges, self.options))

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


@reported_by_text
class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be read, because its options or its columns are wrong.

    Spark 4.3 loses an exception raised while a reader is created: it then tries to stop the reader
    it never got, and reports that failure instead. It reports what a reader raises later as it is.
    """

    def __init__(self, error: RocketMQError) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:
        """The first call of availableNow."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """The first call of any other trigger."""
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query would start."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where a micro-batch would end."""
        raise self._error

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Never called: nothing was planned."""
        raise self._error
