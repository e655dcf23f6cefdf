"""What a read covers: its queues, where each starts and ends."""

import logging
import re
from collections.abc import Callable, Iterable

from sparrowmq.spark.errors import DataLoss, OptionError
from sparrowmq.spark.offsets import (
    EARLIEST,
    EARLIEST_MARK,
    LATEST_MARK,
    Assignment,
    Offsets,
    QueueRange,
    flat,
)
from sparrowmq.spark.options import At, Options
from sparrowmq.spark.routes import Cluster, Queue

_log = logging.getLogger(__name__)


def find_queues(cluster: Cluster, options: Options) -> list[Queue]:
    """All queues to read at present, sorted.

    Raises TopicMissing for a topic that does not exist, OptionError for such a queue in `assign`.
    """
    if options.assign is not None:
        return _assigned(cluster, options.assign)
    topics = options.subscribe or [
        topic for topic in cluster.user_topics() if _matches(options, topic)
    ]
    return sorted(queue for topic in topics for queue in cluster.queues(topic))


def _assigned(cluster: Cluster, assign: Assignment) -> list[Queue]:
    wanted = [
        Queue(topic, broker_name, queue_id)
        for topic, brokers in assign.items()
        for broker_name, ids in brokers.items()
        for queue_id in ids
    ]
    there = {queue for topic in assign for queue in cluster.queues(topic)}
    for queue in wanted:
        if queue not in there:
            known = ", ".join(str(found) for found in sorted(there)) or "no queues"
            raise OptionError("assign", f"{queue} does not exist, there are {known}")
    return sorted(wanted)


def covers(options: Options, topic: str) -> bool:
    """Whether a topic is among those to read, if it exists."""
    if options.assign is not None:
        return topic in options.assign
    return topic in options.subscribe if options.subscribe else _matches(options, topic)


def _matches(options: Options, topic: str) -> bool:
    """By its name; retry and dead-letter topics only for a pattern that speaks of %."""
    pattern = options.subscribe_pattern or ""
    return bool(re.fullmatch(pattern, topic)) and ("%" in pattern or not topic.startswith("%"))


def resolve(
    cluster: Cluster, queues: Iterable[Queue], at: At, option: str, *, default: str
) -> Offsets:
    """The offset of each queue at a place. Raises OptionError when one is not mentioned."""
    if at.time_ms is not None:
        return {queue: cluster.offset_at(queue, at.time_ms) for queue in queues}
    if at.times is not None:
        times = _for_all(flat(at.times), queues, f"{option}ByTimestamp")
        return {queue: cluster.offset_at(queue, time_ms) for queue, time_ms in times.items()}
    if at.offsets is not None:
        offsets = _for_all(flat(at.offsets), queues, option)
        return {queue: _marked(cluster, queue, offset) for queue, offset in offsets.items()}
    ask = cluster.min_offset if (at.word or default) == EARLIEST else cluster.max_offset
    return {queue: ask(queue) for queue in queues}


def _for_all(given: Offsets, queues: Iterable[Queue], option: str) -> Offsets:
    wanted = set(queues)
    for queue in sorted(wanted - set(given)):
        raise OptionError(option, f"{queue} is missing; name every queue that is read")
    for queue in sorted(set(given) - wanted):
        raise OptionError(option, f"{queue} is not read; name only queues that are")
    return given


def _marked(cluster: Cluster, queue: Queue, offset: int) -> int:
    marks: dict[int, Callable[[Queue], int]] = {
        EARLIEST_MARK: cluster.min_offset,
        LATEST_MARK: cluster.max_offset,
    }
    return marks[offset](queue) if offset in marks else offset


def batch_ranges(cluster: Cluster, queues: list[Queue], options: Options) -> list[QueueRange]:
    """From where to where a batch reads each queue.

    Raises OptionError for contradictory offsets, DataLoss where the start is deleted already.
    """
    starts = resolve(cluster, queues, options.starting, "startingOffsets", default=EARLIEST)
    ends = resolve(cluster, queues, options.ending, "endingOffsets", default="latest")
    given = options.starting.offsets is not None, options.ending.offsets is not None
    ranges = []
    for queue in queues:
        start, end = starts[queue], ends[queue]
        if given[1] and end > (latest := cluster.max_offset(queue)):
            raise OptionError("endingOffsets", f"{queue} ends at {latest}, not at {end} yet")
        if any(given) and start > end:
            text = f"{queue} would start at {start}, behind its end {end}"
            raise OptionError("startingOffsets" if given[0] else "endingOffsets", text)
        if given[0]:
            # Past the end when all of the range is gone: then there is nothing left to read.
            start = min(end, _checked_start(cluster, queue, start, options.fail_on_data_loss))
        ranges.append(QueueRange(queue, start, end))
    return ranges


def _checked_start(cluster: Cluster, queue: Queue, start: int, fail: bool) -> int:
    earliest = cluster.min_offset(queue)
    if start >= earliest:
        return start
    if fail:
        raise DataLoss(loss_text(queue, start, earliest))
    _log.warning("%s", loss_text(queue, start, earliest))
    return earliest


def loss_text(queue: Queue, wanted: int, earliest: int) -> str:
    """What to tell about messages that are gone."""
    return (
        f"{queue}: offset {wanted} was wanted, but the broker's oldest is {earliest}:"
        f" {earliest - wanted} messages were deleted before they were read. Keep messages longer"
        " (fileReservedTime), read more often, or set failOnDataLoss=false to go on with the rest"
    )
