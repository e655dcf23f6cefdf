"""Pieces of queues: what the next batch reads, and how it is read."""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparrowmq.spark.offsets import Offsets, QueueRange, share_out, to_json
from sparrowmq.spark.options import Options
from sparrowmq.spark.routes import Cluster, Queue
from sparrowmq.spark.source_plan import loss_text
from sparrowmq.spark.stream_plan import latest_offsets

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
    for queue, _, _ in wanted:
        brokers = assigned.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, []).append(queue.queue_id)
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    for name, value in {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(to_json({part.queue: part.start for part in wanted})),
        "endingOffsets": json.dumps(to_json({part.queue: part.end for part in wanted})),
        **options,
    }.items():
        reader = reader.option(name, value)
    return reader.load()


def next_ranges(
    cluster: Cluster, options: Options, begin: Offsets, target: Offsets | None, limit: int
) -> tuple[list[QueueRange], Offsets]:
    """What to read from `begin` on, at most `limit` messages, and where that ends.

    New queues start at their oldest message. So do, where the options allow data loss, a queue that
    was made anew and one whose next messages were deleted: a gap may be longer than many batches.
    Raises DataLoss, BrokerAway.
    """
    latest = latest_offsets(cluster, options, begin, target)
    is_strict = options.fail_on_data_loss
    starts = {
        queue: _start(cluster, queue, begin, last, is_strict=is_strict)
        for queue, last in latest.items()
    }
    end = share_out(starts, latest, limit)
    ranges = [QueueRange(queue, starts[queue], last) for queue, last in sorted(end.items())]
    return [part for part in ranges if part.size > 0], end


def _start(cluster: Cluster, queue: Queue, begin: Offsets, last: int, *, is_strict: bool) -> int:
    first = begin.get(queue)
    if first is not None and (first == last or (is_strict and first < last)):
        return first  # what is gone of it is told when it is read
    earliest = min(last, cluster.min_offset(queue))
    if first is None or first > last:
        return earliest
    if first < earliest:
        _log.warning("%s", loss_text(queue, first, earliest))
    return max(first, earliest)


def rows_in(ranges: Iterable[QueueRange]) -> int:
    """Messages in some ranges."""
    return sum(part.size for part in ranges)
