"""Positions: offsets with the epoch of the broker's log in which each was learned.

A queue can get shorter: after a power cut, when its topic is deleted and created again, or when an
older copy of the store is restored. Its offsets then go to other messages. Our brokers number the
epochs of their log (each start and each deletion begins one) and report how far the offsets of an
epoch still point to the same messages:

    kept 0 … 3 | lost 4 … 9    power cut    kept 0 … 3 | new 4 …
                           ^ position 10, epoch 7      ^ epoch 8: those of epoch 7 valid up to 4

Checkpoints, archives and journals keep positions as JSON:

    {"orders": {"broker-a": {"0": 17}}, "$epochs": {"orders": {"broker-a": {"0": 1763280000}}}}

Positions stored before epochs existed, and those of Apache's brokers, have none. Then a queue
counts as having gone back only if it ends before the position.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sparrowmq.spark import offsets as plain
from sparrowmq.spark.errors import DataLoss
from sparrowmq.spark.offsets import Offsets
from sparrowmq.spark.wire.cluster import (
    UNKNOWN_EPOCH,
    Queue,
    QueueEnd,
    QueuePosition,
    RemoteCluster,
)

EPOCHS = "$epochs"
GO_ON = "Set failOnDataLoss=false (archive: --allow-data-loss) to continue with new messages"

Positions: TypeAlias = dict[Queue, QueuePosition]

_log = logging.getLogger(__name__)


def to_json(positions: Positions) -> dict[str, Any]:
    """The positions as Spark stores them, in a fixed order."""
    nested = plain.to_json(offsets_of(positions))
    epochs = {queue: at.epoch for queue, at in positions.items() if at.epoch != UNKNOWN_EPOCH}
    return {**nested, EPOCHS: plain.to_json(epochs)} if epochs else {**nested}


def from_json(nested: Mapping[str, Any]) -> Positions:
    """Read what `to_json` made, or the offsets of an earlier release."""
    epochs = plain.from_json(nested.get(EPOCHS) or {})
    return {
        queue: QueuePosition(offset, epochs.get(queue, UNKNOWN_EPOCH))
        for queue, offset in plain.from_json(nested).items()
    }


def offsets_of(positions: Positions) -> Offsets:
    """The positions without their epochs."""
    return {queue: at.offset for queue, at in positions.items()}


def lowered(positions: Positions, offsets: Offsets) -> Positions:
    """Positions at `offsets`, which lie at or before `positions`, with the epochs of those."""
    return {queue: QueuePosition(offsets[queue], at.epoch) for queue, at in positions.items()}


def ends_now(cluster: RemoteCluster, queues: Iterable[Queue]) -> Positions:
    """Where the queues end now."""
    return {queue: cluster.end(queue).position for queue in queues}


def good_up_to(at: QueuePosition, end: QueueEnd) -> int:
    """How far the messages before the position are still there, as of now.

    `end` is the broker's answer to a request with the epoch of the position.
    """
    if at.epoch == UNKNOWN_EPOCH or end.position.epoch < at.epoch:
        return end.position.offset
    return at.offset if end.valid_end is None else end.valid_end


def checked(
    cluster: RemoteCluster,
    queue: Queue,
    at: QueuePosition,
    end: QueueEnd,
    *,
    fail_on_data_loss: bool,
) -> QueuePosition:
    """The position itself, or where to continue in a queue that went back.

    Raises DataLoss unless data loss is allowed, BrokerAway where only a slave reports that the
    queue went back.
    """
    good = good_up_to(at, end)
    if at.offset <= good:
        return at
    cluster.wait_for_master(queue, f"{queue} had reached {at.offset}, of which it has {good}")
    text = f"{went_back(queue, at.offset, good)}. {GO_ON}"
    if fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    is_exact = at.epoch != UNKNOWN_EPOCH and end.valid_end is not None
    # Without epochs there is no way to know what was lost: reading twice is better than never.
    back_to = good if is_exact else min(good, cluster.min_offset(queue))
    return QueuePosition(back_to, end.position.epoch)


def checked_again(
    cluster: RemoteCluster, queue: Queue, at: QueuePosition, *, fail_on_data_loss: bool
) -> QueuePosition:
    """Check a position stored a while ago; one without an epoch is trusted."""
    if at.epoch == UNKNOWN_EPOCH:
        return at
    end = cluster.end(queue, since=at.epoch)
    return checked(cluster, queue, at, end, fail_on_data_loss=fail_on_data_loss)


def went_back(queue: Queue, offset: int, good: int) -> str:
    """The report of a queue that got shorter, without a remedy."""
    return (
        f"{queue} went back: it had reached {offset}, and of the messages that it had then only"
        f" those before {good} are left; what follows is new. The broker lost power, the topic was"
        " deleted and created again, or an older copy of the store was restored"
    )
