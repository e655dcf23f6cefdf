"""Queue locks, which orderly consumers take at the broker."""

import msgspec

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.message import MessageQueue

LOCK_LIFE_S = 60.0
"""How long a broker keeps a lock at least without renewal: the default of Apache's broker
(rocketmq.broker.rebalance.lockMaxLiveTime), and not part of any answer. A member considers a queue
its own if it renewed the lock within this time; a broker that gave the lock away sooner could have
two members working on the queue."""


class LockBatchRequest(Body, frozen=True, kw_only=True):
    """Body of request 41, and of 42, which releases the locks."""

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
