"""How far a stream can read: what appeared, what vanished, what went back."""

import logging

from sparrowmq.spark.errors import BrokerAway, DataLoss, TopicMissing
from sparrowmq.spark.offsets import Offsets
from sparrowmq.spark.options import Options
from sparrowmq.spark.routes import Cluster, Queue
from sparrowmq.spark.source_plan import find_queues

_log = logging.getLogger(__name__)


def latest_offsets(
    cluster: Cluster, options: Options, begin: Offsets, target: Offsets | None
) -> Offsets:
    """The end of every queue: those of `begin`, and new ones unless there is a `target`.

    Raises BrokerAway while a known broker is not there, DataLoss for a queue that is gone for good
    or goes back behind what was read already.
    """
    there = _queues_there(cluster, options, begin)
    for queue in sorted(set(begin) - there):
        _check_gone(cluster, queue, options)
    wanted = set(begin) | (there if target is None else there & set(target))
    ends: Offsets = {}
    for queue in sorted(wanted):
        if queue not in there:
            ends[queue] = begin[queue]
            continue
        latest = cluster.max_offset(queue)
        if target is not None:
            latest = min(latest, target.get(queue, latest))
        ends[queue] = _checked_end(queue, begin.get(queue, 0), latest, options, target)
    return ends


def _queues_there(cluster: Cluster, options: Options, begin: Offsets) -> set[Queue]:
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


def _checked_end(
    queue: Queue, begin: int, latest: int, options: Options, target: Offsets | None
) -> int:
    if latest >= begin:
        return latest
    if target is not None and queue in target:
        return begin  # the run was prepared before these were written and read
    text = (
        f"{queue} ends at {latest}, but was read up to {begin} already. Was the topic deleted and"
        " created again? Set failOnDataLoss=false to read it from its beginning"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    return latest
