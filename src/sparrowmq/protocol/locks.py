"""Locks of queues, which orderly consumers take at the broker."""

import msgspec

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.message import MessageQueue


class LockBatchRequest(Body, frozen=True, kw_only=True):
    """Body of request 41, and of 42 for giving them back."""

    consumer_group: str
    client_id: str
    mq_set: frozenset[MessageQueue] = frozenset()
    only_this_broker: bool = False


UnlockBatchRequest = LockBatchRequest
"""The same fields mean the opposite."""


class LockBatchResponse(Body, frozen=True, kw_only=True):
    """The queues that are locked now."""

    lock_ok_mq_set: frozenset[MessageQueue] = msgspec.field(
        name="lockOKMQSet", default_factory=frozenset
    )
