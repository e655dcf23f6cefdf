"""What a stream reads next: what appeared, what vanished, what went back."""

import logging
from typing import NamedTuple

from sparrowmq.spark.errors import BrokerAway, DataLoss, TopicMissing
from sparrowmq.spark.options import Options
from sparrowmq.spark.positions import Positions, checked, checked_again
from sparrowmq.spark.routes import UNKNOWN_EPOCH, Cluster, Position, Queue
from sparrowmq.spark.source_plan import find_queues

_log = logging.getLogger(__name__)


class Reach(NamedTuple):
    """From where to where queues can be read. Both have the same queues."""

    starts: Positions
    ends: Positions


def reach(
    cluster: Cluster, options: Options, begin: Positions, target: Positions | None = None
) -> Reach:
    """What can be read after `begin`, in new queues as well unless there is a `target`.

    New queues start at their oldest message. Raises BrokerAway while a known broker is not there,
    DataLoss for a queue that is gone for good or went back, whatever the target: where that is
    allowed the queue starts again where its new messages do.
    """
    there = _queues_there(cluster, options, begin)
    for queue in sorted(set(begin) - there):
        _check_gone(cluster, queue, options)
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
    cluster: Cluster, options: Options, queue: Queue, known: Position | None, last: Position | None
) -> tuple[Position, Position]:
    now = cluster.end(queue, UNKNOWN_EPOCH if known is None else known.epoch)
    end = now.position
    if known is None:
        start = Position(min(end.offset, cluster.min_offset(queue)), end.epoch)
    else:
        loss = options.fail_on_data_loss
        start = checked(cluster, queue, known, now, fail_on_data_loss=loss)
    if last is not None:
        end = Position(min(end.offset, last.offset), end.epoch)
    # Word for word where there is nothing new: another epoch alone would be a batch of nothing.
    return start, end if end.offset > start.offset else start


def reach_again(cluster: Cluster, options: Options, begin: Positions, end: Positions) -> Reach:
    """The same for a batch that was planned by an earlier run and perhaps not read.

    Its end was good then. Raises DataLoss where it is not any more; where that is allowed, the
    batch has what is left of it, and the next one begins with what is new.
    """
    loss = options.fail_on_data_loss
    found = Reach({}, {})
    for queue, last in sorted(end.items()):
        start = begin.get(queue)
        if start == last:
            continue  # nothing to read, so that nothing has to be asked
        if start is not None:
            start = checked_again(cluster, queue, start, fail_on_data_loss=loss)
        # Past its end: the queue went back under a broker without epochs, see `checked`.
        if start is None or (start.epoch == UNKNOWN_EPOCH and start.offset > last.offset):
            start = Position(cluster.min_offset(queue), last.epoch)
        found.starts[queue] = start
        found.ends[queue] = checked_again(cluster, queue, last, fail_on_data_loss=loss)
    return found


def _queues_there(cluster: Cluster, options: Options, begin: Positions) -> set[Queue]:
    try:
        return set(find_queues(cluster, options))
    except TopicMissing as missing:
        if missing.topic not in {queue.topic for queue in begin}:
            raise
        # It was there before, so it is its broker that is missing.
        names = {queue.broker_name for queue in begin if queue.topic == missing.topic}
        text = f"{', '.join(sorted(names))}, which serves topic {missing.topic}, is not registered"
        raise BrokerAway(f"broker {text} at {missing.name_servers}") from missing


def _check_gone(cluster: Cluster, queue: Queue, options: Options) -> None:
    addresses = cluster.known_route(queue.topic).addresses
    if queue.broker_name not in addresses:
        raise BrokerAway(f"broker {queue.broker_name}, which has {queue}, is not registered")
    text = (
        f"{queue} does not exist any more (queues of the topic were taken away);"
        " set failOnDataLoss=false to go on with the others"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
