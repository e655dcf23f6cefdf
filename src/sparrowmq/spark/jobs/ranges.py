"""Pieces of queues: what the next batch reads, and how it is read."""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparrowmq.spark.offsets import QueueRange, share_out
from sparrowmq.spark.options import Options
from sparrowmq.spark.positions import Positions, lowered, offsets_of, to_json
from sparrowmq.spark.routes import Cluster, Position, Queue
from sparrowmq.spark.source_plan import loss_text
from sparrowmq.spark.stream_plan import reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_NOTHING: Mapping[str, str] = {}


def read_ranges(
    spark: "SparkSession",
    name_server: str,
    ranges: Iterable[QueueRange],
    options: Mapping[str, str] = _NOTHING,
) -> "DataFrame":
    """The messages of some ranges, the same ones each time; `options` are the source's."""
    wanted = list(ranges)
    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in (part.queue for part in wanted):
        brokers = assigned.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, []).append(queue.queue_id)
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    starts = {part.queue: Position(part.start) for part in wanted}
    ends = {part.queue: Position(part.end, part.epoch) for part in wanted}
    for name, value in {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(to_json(starts)),
        "endingOffsets": json.dumps(to_json(ends)),
        **options,
    }.items():
        reader = reader.option(name, value)
    return reader.load()


def next_ranges(
    cluster: Cluster, options: Options, begin: Positions, target: Positions | None, limit: int
) -> tuple[list[QueueRange], Positions]:
    """What to read from `begin` on, at most `limit` messages, and where that ends.

    New queues start at their oldest message. Where the options allow data loss, so does a queue
    whose next messages were deleted, because a gap may be longer than many batches, and a queue
    that went back starts with its new messages. Raises DataLoss, BrokerAway.
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


def _kept(cluster: Cluster, queue: Queue, first: int, last: int) -> int:
    if first == last:
        return first
    earliest = min(last, cluster.min_offset(queue))
    if first < earliest:
        _log.warning("%s", loss_text(queue, first, earliest))
    return max(first, earliest)


def rows_in(ranges: Iterable[QueueRange]) -> int:
    """Messages in some ranges."""
    return sum(part.size for part in ranges)
