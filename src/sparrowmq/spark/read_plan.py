"""What a read covers: its queues, and where a batch or a micro-batch starts and ends in each."""

import logging
import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from sparrowmq.spark.errors import BrokerAway, DataLoss, OptionError, TopicMissing, few_of
from sparrowmq.spark.offsets import (
    EARLIEST,
    EARLIEST_MARK,
    LATEST_MARK,
    Assignment,
    QueueRange,
    flat,
)
from sparrowmq.spark.options import At, Options
from sparrowmq.spark.positions import Positions, checked, checked_again, ends_now
from sparrowmq.spark.wire.cluster import UNKNOWN_EPOCH, Queue, QueuePosition, RemoteCluster

T = TypeVar("T")

_log = logging.getLogger(__name__)


def find_queues(cluster: RemoteCluster, options: Options) -> list[Queue]:
    """All queues to read at present, sorted.

    Raises TopicMissing for a missing topic, OptionError for a missing queue in `assign`.
    """
    if options.assign is not None:
        return _assigned(cluster, options.assign)
    topics = options.subscribe or [
        topic for topic in cluster.user_topics() if matches(options.subscribe_pattern or "", topic)
    ]
    return sorted(queue for topic in topics for queue in cluster.queues(topic))


def queues_at_start(cluster: RemoteCluster, options: Options) -> list[Queue]:
    """The queues of a read that begins, with a warning for a pattern that matches no topic.

    Not an error, because all topics of a pattern may be created later. Raises as `find_queues`.
    """
    found = find_queues(cluster, options)
    if options.subscribe_pattern is not None and not found:
        topics = [topic for topic in cluster.user_topics() if not topic.startswith("%")]
        there = f"its topics are {few_of(topics)}" if topics else "it has no topics"
        _log.warning(
            "option subscribePattern: %r matches no topic of %s, so there is nothing to read; %s",
            options.subscribe_pattern,
            cluster,
            there,
        )
    return found


def _assigned(cluster: RemoteCluster, assign: Assignment) -> list[Queue]:
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
    """Whether the options choose a topic, which need not exist."""
    if options.assign is not None:
        return topic in options.assign
    if options.subscribe:
        return topic in options.subscribe
    return matches(options.subscribe_pattern or "", topic)


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern matches a topic; retry and dead-letter topics need a % in the pattern."""
    return bool(re.fullmatch(pattern, topic)) and ("%" in pattern or not topic.startswith("%"))


def resolve(
    cluster: RemoteCluster, queues: Iterable[Queue], at: At, option: str, *, default: str
) -> Positions:
    """The position of each queue at a place. Raises OptionError when a queue is not mentioned."""
    if at.time_ms is not None:
        return {queue: cluster.position_at(queue, at.time_ms) for queue in queues}
    if at.times is not None:
        times = _for_all(flat(at.times), queues, f"{option}ByTimestamp")
        return {queue: cluster.position_at(queue, time_ms) for queue, time_ms in times.items()}
    if at.positions is not None:
        positions = _for_all(at.positions, queues, option)
        return {queue: _marked(cluster, queue, place) for queue, place in positions.items()}
    if (at.word or default) == EARLIEST:
        return {queue: cluster.oldest(queue) for queue in queues}
    return ends_now(cluster, queues)


def _for_all(given: dict[Queue, T], queues: Iterable[Queue], option: str) -> dict[Queue, T]:
    wanted = set(queues)
    for queue in sorted(wanted - set(given)):
        raise OptionError(option, f"{queue} is missing; name every queue that is read")
    for queue in sorted(set(given) - wanted):
        raise OptionError(option, f"{queue} is not read; name only queues that are")
    return given


def _marked(cluster: RemoteCluster, queue: Queue, place: QueuePosition) -> QueuePosition:
    if place.offset == EARLIEST_MARK:
        return cluster.oldest(queue)
    return cluster.end(queue).position if place.offset == LATEST_MARK else place


def batch_ranges(cluster: RemoteCluster, queues: list[Queue], options: Options) -> list[QueueRange]:
    """The range of each queue that a batch reads.

    Raises OptionError for contradictory offsets, DataLoss where the start has been deleted already
    or the queue went back.
    """
    starts = resolve(cluster, queues, options.starting, "startingOffsets", default=EARLIEST)
    ends = resolve(cluster, queues, options.ending, "endingOffsets", default="latest")
    given = options.starting.positions is not None, options.ending.positions is not None
    ranges = []
    for queue in queues:
        start, end = starts[queue], ends[queue]
        if given[1]:
            end = _checked_end(cluster, queue, end, options.fail_on_data_loss)
        if any(given) and start.offset > ends[queue].offset:
            text = f"{queue} would start at {start.offset}, past its end {end.offset}"
            raise OptionError("startingOffsets" if given[0] else "endingOffsets", text)
        first = start.offset
        if given[0]:
            first = _checked_start(cluster, queue, start, options.fail_on_data_loss)
        # Past the end when the whole range is gone: then there is nothing left to read.
        first = min(first, end.offset) if any(given) else first
        ranges.append(QueueRange(queue, first, end.offset, end.epoch))
    return ranges


def _checked_start(cluster: RemoteCluster, queue: Queue, at: QueuePosition, fail: bool) -> int:
    start = checked_again(cluster, queue, at, fail_on_data_loss=fail).offset
    earliest = cluster.min_offset(queue)
    if start >= earliest:
        return start
    cluster.wait_for_master(queue, f"offset {start} was wanted, and its oldest is {earliest}")
    if fail:
        raise DataLoss(loss_text(queue, start, earliest))
    _log.warning("%s", loss_text(queue, start, earliest))
    return earliest


def _checked_end(
    cluster: RemoteCluster, queue: Queue, at: QueuePosition, fail: bool
) -> QueuePosition:
    """Check an end that was given: its messages still exist, and the queue reaches that far."""
    now = cluster.end(queue, since=at.epoch)
    if at.epoch != UNKNOWN_EPOCH:
        at = checked(cluster, queue, at, now, fail_on_data_loss=fail)
    if at.offset > now.position.offset:
        text = f"{queue} ends at {now.position.offset}, not at {at.offset} yet"
        raise OptionError("endingOffsets", text)
    return at if at.epoch != UNKNOWN_EPOCH else QueuePosition(at.offset, now.position.epoch)


def loss_text(queue: Queue, wanted: int, earliest: int) -> str:
    """The report of messages that are gone."""
    return (
        f"{queue}: offset {wanted} was wanted, but the broker's oldest is {earliest}:"
        f" {earliest - wanted} messages were deleted before they were read. Keep messages longer"
        " (fileReservedTime), read more often, or set failOnDataLoss=false to read the rest"
    )


# ---- what a stream reads next: new queues, queues that are gone, queues that went back


class Reach(NamedTuple):
    """The ranges in which queues can be read. Both dictionaries have the same queues."""

    starts: Positions
    ends: Positions


def reach(
    cluster: RemoteCluster, options: Options, begin: Positions, target: Positions | None = None
) -> Reach:
    """What can be read after `begin`, including new queues unless there is a `target`.

    New queues start at their oldest message. Raises BrokerAway while a known broker is away, and,
    whatever the target, DataLoss for a queue that is gone for good or went back: where data loss is
    allowed, the queue starts again at its first new message.
    """
    there = _queues_there(cluster, options, begin)
    for queue in sorted(set(begin) - there):
        _check_gone(cluster, queue, options, goes_on=not there.isdisjoint(begin))
    wanted = set(begin) | (there if target is None else there & set(target))
    found = Reach({}, {})
    for queue in sorted(wanted):
        if queue in there:
            last = target.get(queue) if target is not None else None
            start, end = _reach_in(cluster, options, queue, begin.get(queue), last)
        else:
            start = end = begin[queue]
        found.starts[queue], found.ends[queue] = start, end
    return found


def _reach_in(
    cluster: RemoteCluster,
    options: Options,
    queue: Queue,
    known: QueuePosition | None,
    last: QueuePosition | None,
) -> tuple[QueuePosition, QueuePosition]:
    now = cluster.end(queue, UNKNOWN_EPOCH if known is None else known.epoch)
    end = now.position
    if known is None:
        start = QueuePosition(min(end.offset, cluster.min_offset(queue)), end.epoch)
    else:
        loss = options.fail_on_data_loss
        start = checked(cluster, queue, known, now, fail_on_data_loss=loss)
    if last is not None:
        end = QueuePosition(min(end.offset, last.offset), end.epoch)
    # Unchanged where nothing is new: a new epoch alone would make an empty batch.
    return start, end if end.offset > start.offset else start


def reach_again(
    cluster: RemoteCluster, options: Options, begin: Positions, end: Positions
) -> Reach:
    """The reach of a batch that an earlier run planned and perhaps did not read.

    Its end was valid then. Raises DataLoss where it no longer is; where data loss is allowed, the
    batch keeps what is left of it, and the next one begins with the new messages.
    """
    loss = options.fail_on_data_loss
    found = Reach({}, {})
    for queue, last in sorted(end.items()):
        start = begin.get(queue)
        if start == last:
            continue  # nothing to read, so no request is needed
        if start is not None:
            start = checked_again(cluster, queue, start, fail_on_data_loss=loss)
        # Past its end: the queue went back under a broker without epochs, see `checked`.
        if start is None or (start.epoch == UNKNOWN_EPOCH and start.offset > last.offset):
            start = QueuePosition(cluster.min_offset(queue), last.epoch)
        found.starts[queue] = start
        found.ends[queue] = checked_again(cluster, queue, last, fail_on_data_loss=loss)
    return found


def _queues_there(cluster: RemoteCluster, options: Options, begin: Positions) -> set[Queue]:
    try:
        return set(find_queues(cluster, options))
    except TopicMissing as missing:
        if missing.topic not in {queue.topic for queue in begin}:
            raise
        # The topic existed before, so its broker is what is missing.
        names = {queue.broker_name for queue in begin if queue.topic == missing.topic}
        text = f"{', '.join(sorted(names))}, which serves topic {missing.topic}, is not registered"
        raise BrokerAway(f"broker {text} at {missing.name_servers}") from missing


def _check_gone(cluster: RemoteCluster, queue: Queue, options: Options, *, goes_on: bool) -> None:
    addresses = cluster.known_route(queue.topic).addresses
    if queue.broker_name not in addresses:
        raise BrokerAway(f"broker {queue.broker_name}, which has {queue}, is not registered")
    if queue in cluster.queues(queue.topic):
        what = (
            "exists, and the options do not ask for it: the checkpoint is of a query that reads"
            " something else. Give each query a checkpointLocation of its own"
        )
    else:
        what = "no longer exists (queues of the topic were taken away)"
    remedy = ", or set failOnDataLoss=false to continue with the others" if goes_on else ""
    text = f"{queue} {what}{remedy}"
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
