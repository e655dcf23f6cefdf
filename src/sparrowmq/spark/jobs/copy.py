"""Copies messages from ranges of queues to a topic, batch by batch, with progress in a journal.

    under way ── the journal says which batch is being sent
    sent ── every row is at a broker
    committed ── the journal says so

A run that dies is repeated from its last commit. The batch that was under way is sent again, cut
the same way and so with the same unique ids (see `encode.row_encoder`): nothing is lost, and at
most one batch is duplicated. Later batches may have another size.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sparrowmq.spark.jobs.job import JobError, JobStep, OnStep
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.offsets import Offsets, QueueRange, from_json, share_out, to_json
from sparrowmq.spark.options import Options
from sparrowmq.spark.positions import Positions, good_up_to, lowered, offsets_of, went_back
from sparrowmq.spark.positions import from_json as positions_from_json
from sparrowmq.spark.positions import to_json as positions_to_json
from sparrowmq.spark.read_plan import loss_text, reach
from sparrowmq.spark.wire.cluster import UNKNOWN_EPOCH, Queue, QueuePosition, RemoteCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Batch:
    """What is sent before the next commit, cut so that the target's queues fill evenly.

    The sink sends the rows of a task to the queues in turn. A task whose number of rows is a
    multiple of the number of queues gives each queue the same number, so a batch takes such a
    multiple from every range; the remainders, each smaller than the number of queues, go in the
    last batch, in one task.
    """

    ranges: list[QueueRange]
    is_rest: bool


class Cut(NamedTuple):
    """How large batches are: the same cut of the same remainder gives the same batch."""

    rows: int
    unit: int
    """Each range is a multiple of this."""


def next_batch(done: Offsets, ends: Offsets, limit: int, unit: int) -> Batch | None:
    """The batch after `done`, None at the end. About `limit` messages, at least one `unit`.

    The same arguments give the same batch: the run after one that died repeats its batch.
    """
    left = {queue: end - done[queue] for queue, end in sorted(ends.items()) if end > done[queue]}
    if not left:
        return None
    # Counted in units, a share of the limit is what `share_out` gives.
    units = {queue: size // unit for queue, size in left.items()}
    if not any(units.values()):
        ranges = [QueueRange(queue, done[queue], ends[queue]) for queue in left]
        return Batch(ranges, is_rest=True)
    shares = share_out(dict.fromkeys(units, 0), units, max(1, limit // unit))
    ranges = [
        QueueRange(queue, done[queue], done[queue] + share * unit)
        for queue, share in shares.items()
        if share
    ]
    return Batch(ranges, is_rest=False)


Read = Callable[[list[QueueRange]], "DataFrame"]

Shape = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How far a copy is, as stored in the journal."""

    job_id: str
    starts: Offsets
    ends: Positions
    """Fixed when the job began; later messages are not copied. The starts and the progress come
    before them, in the same epochs."""
    done: Offsets
    sent: int = 0
    batches: int = 0
    under_way: int = 0
    """Number of messages in the batch being sent, 0 between batches."""
    cut: Cut | None = None
    """The cut of the batch begun last; None before the first one, and in journals of earlier
    releases."""
    repeated: int = 0
    """Messages of batches that were under way when a run died: this many may be duplicated."""
    is_finished: bool = False

    @property
    def wanted(self) -> int:
        """Messages between the starts and the ends."""
        return sum(end.offset - self.starts[queue] for queue, end in self.ends.items())

    @property
    def looked_at(self) -> int:
        """Number of messages passed, whether sent or not."""
        return sum(at - self.starts[queue] for queue, at in self.done.items())

    @property
    def reached(self) -> Positions:
        """How far the copy is, with epochs."""
        return lowered(self.ends, self.done)

    @property
    def left(self) -> list[QueueRange]:
        """The ranges not passed yet."""
        ranges = (
            QueueRange(queue, self.done[queue], end.offset, end.epoch)
            for queue, end in sorted(self.ends.items())
        )
        return [part for part in ranges if part.size > 0]

    def next_batch(self, cut: Cut) -> Batch | None:
        """What to copy next, None at the end."""
        batch = next_batch(self.done, offsets_of(self.ends), cut.rows, cut.unit)
        if batch is None:
            return None
        ranges = [part._replace(epoch=self.ends[part.queue].epoch) for part in batch.ranges]
        return replace(batch, ranges=ranges)

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "jobId": self.job_id,
            "starts": to_json(self.starts),
            "ends": positions_to_json(self.ends),
            "done": to_json(self.done),
            "sent": self.sent,
            "batches": self.batches,
            "underWay": self.under_way,
            "cut": self.cut,
            "repeated": self.repeated,
            "isFinished": self.is_finished,
        }


def copied_from(value: dict[str, Any]) -> Copied:
    """Read what `Copied.to_json` made."""
    return Copied(
        job_id=value["jobId"],
        starts=from_json(value["starts"]),
        ends=positions_from_json(value["ends"]),
        done=from_json(value["done"]),
        sent=value["sent"],
        batches=value["batches"],
        under_way=value["underWay"],
        cut=Cut(*cut) if (cut := value.get("cut")) else None,
        repeated=value["repeated"],
        is_finished=value["isFinished"],
    )


def new_copy(job_id: str, starts: Offsets, ends: Positions) -> Copied:
    """A copy that has not begun."""
    return Copied(job_id=job_id, starts=starts, ends=ends, done=dict(starts))


def check_kept(cluster: RemoteCluster, positions: Positions, journal: JobJournal) -> None:
    """Raises JobError if a queue went back: other messages now have the offsets of the copy."""
    for queue, at in sorted(positions.items()):
        if at.epoch == UNKNOWN_EPOCH:
            continue
        good = good_up_to(at, cluster.end(queue, since=at.epoch))
        if at.offset > good:
            raise JobError(
                f"{went_back(queue, at.offset, good)}. Nothing more is copied, and what was copied"
                f" stays. To copy what is there now, remove {journal.path} and start over"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """Where and how a copy is sent."""

    name_server: str
    topic: str | None
    """The target topic; None if the rows have a column topic."""
    queues: int = 1
    """How many queues the rows go to in turn: batches are cut to fill them evenly."""
    batch_rows: int = 100_000
    rows_per_second: int | None = None
    where: str | None = None
    """A condition in Spark's SQL on the columns."""


def shared_rate(batch: Batch, cores: int, rows_per_second: int | None) -> tuple[int, int | None]:
    """How many tasks send a batch, and how many rows per second each of them may send."""
    tasks = min(1 if batch.is_rest else cores, len(batch.ranges))
    if rows_per_second is None:
        return tasks, None
    # Rates are whole rows per second: with more tasks than that the total would exceed the rate.
    tasks = min(tasks, rows_per_second)
    return tasks, rows_per_second // tasks


class Copier:
    """Copies what a journal says is left."""

    def __init__(
        self,
        spark: "SparkSession",
        journal: JobJournal,
        sending: CopyTarget,
        shape: Shape,
        on_step: OnStep,
        read: Read | None = None,
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._journal = journal
        self._sending = sending
        self._shape = shape
        self._on_step = on_step
        self._read = read or self._from_broker
        self._before_batch = before_batch

    def _from_broker(self, ranges: list[QueueRange]) -> "DataFrame":
        ends = {part.queue: QueuePosition(part.end, part.epoch) for part in ranges}
        with RemoteCluster(self._sending.name_server, 10.0) as cluster:
            check_kept(cluster, ends, self._journal)
        return read_ranges(self._spark, self._sending.name_server, ranges)

    def run(self, copied: Copied) -> Copied:
        """Copy to the end. Raises what Spark raises; the next run continues from there."""
        wanted = cut = Cut(self._sending.batch_rows, self._sending.queues)
        if copied.under_way:
            cut = copied.cut or wanted
            copied = replace(copied, repeated=copied.repeated + copied.under_way, under_way=0)
        while batch := copied.next_batch(cut):
            self._before_batch()
            copied = self._copy(replace(copied, cut=cut), batch)
            cut = wanted
        copied = replace(copied, is_finished=True)
        self._write(copied)
        self._report("finished", copied)
        return copied

    def _copy(self, copied: Copied, batch: Batch) -> Copied:
        size = rows_in(batch.ranges)
        copied = replace(copied, under_way=size)
        self._write(copied)
        self._report("under way", copied, size)
        sent = self._send(batch, f"{copied.job_id}-{copied.batches}")
        self._report("sent", copied, sent)
        copied = replace(
            copied,
            done=copied.done | {part.queue: part.end for part in batch.ranges},
            sent=copied.sent + sent,
            batches=copied.batches + 1,
            under_way=0,
        )
        self._write(copied)
        self._report("committed", copied, sent)
        return copied

    def _send(self, batch: Batch, job_id: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        sending, seen = self._sending, Observation()
        frame = self._read(batch.ranges)
        if sending.where is not None:
            frame = frame.where(sending.where)
        frame = self._shape(with_own_key(frame, job_id)).observe(
            seen, F.count(F.lit(1)).alias("rows")
        )
        cores = self._spark.sparkContext.defaultParallelism
        tasks, rate = shared_rate(batch, cores, sending.rows_per_second)
        writer = frame.coalesce(tasks).write.format("rocketmq").mode("append")
        writer = writer.option("nameServer", sending.name_server).option("jobId", job_id)
        # The shape decides: a drain that spreads evenly is there for a queue with one busy key.
        writer = writer.option("shardByProperty", "false")
        if sending.topic is not None:
            writer = writer.option("topic", sending.topic)
        if rate is not None:
            writer = writer.option("maxRowsPerSecond", str(rate))
        writer.save()
        return int(seen.get["rows"])

    def _write(self, copied: Copied) -> None:
        self._journal.write({**(self._journal.read() or {}), "copy": copied.to_json()})

    def _report(self, name: str, copied: Copied, rows: int = 0) -> None:
        sent = None if self._sending.where is None else copied.sent
        self._on_step(JobStep(name, rows, copied.looked_at, copied.wanted, sent))


_DEDUP_KEY = "DEDUP_KEY"
_PLACE = ("topic", "brokerName", "queueId", "queueOffset")


def with_own_key(frame: "DataFrame", job_id: str) -> "DataFrame":
    """Give the messages this job's DEDUP_KEY: a de-duplicated topic then accepts messages that it
    has stored before, but stores a batch that is sent again only once."""
    from pyspark.sql import functions as F

    places = [F.col(name).cast("string") for name in _PLACE if name in frame.columns]
    key = F.concat_ws("/", F.lit(job_id), *places)
    others = F.map_filter("properties", lambda name, _: name != _DEDUP_KEY)
    return frame.withColumn(
        "properties", F.map_concat(others, F.create_map(F.lit(_DEDUP_KEY), key))
    )


# ---- ranges of queues: what the next batch reads, and how


def read_ranges(
    spark: "SparkSession",
    name_server: str,
    ranges: Iterable[QueueRange],
    options: Mapping[str, str] = _NOTHING,
) -> "DataFrame":
    """The messages of some ranges, the same ones every time; `options` are the source's."""
    wanted = list(ranges)
    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in (part.queue for part in wanted):
        brokers = assigned.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, []).append(queue.queue_id)
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    starts = {part.queue: QueuePosition(part.start) for part in wanted}
    ends = {part.queue: QueuePosition(part.end, part.epoch) for part in wanted}
    for name, value in {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(positions_to_json(starts)),
        "endingOffsets": json.dumps(positions_to_json(ends)),
        **options,
    }.items():
        reader = reader.option(name, value)
    return reader.load()


def next_ranges(
    cluster: RemoteCluster, options: Options, begin: Positions, target: Positions | None, limit: int
) -> tuple[list[QueueRange], Positions]:
    """What to read from `begin` on, at most `limit` messages, and where that ends.

    New queues start at their oldest message. Where the options allow data loss, so does a queue
    whose next messages were deleted, because a gap may be longer than many batches, and a queue
    that went back starts at its first new message. Raises DataLoss, BrokerAway.
    """
    found = reach(cluster, options, begin, target)
    starts, latest = offsets_of(found.starts), offsets_of(found.ends)
    if not options.fail_on_data_loss:
        starts = {queue: _kept(cluster, queue, at, latest[queue]) for queue, at in starts.items()}
    end = lowered(found.ends, share_out(starts, latest, limit))
    ranges = [
        QueueRange(queue, starts[queue], last.offset, last.epoch)
        for queue, last in sorted(end.items())
    ]
    return [part for part in ranges if part.size > 0], end


def _kept(cluster: RemoteCluster, queue: Queue, first: int, last: int) -> int:
    if first == last:
        return first
    earliest = min(last, cluster.min_offset(queue))
    if first < earliest:
        _log.warning("%s", loss_text(queue, first, earliest))
    return max(first, earliest)


def rows_in(ranges: Iterable[QueueRange]) -> int:
    """The number of messages in some ranges."""
    return sum(part.size for part in ranges)
