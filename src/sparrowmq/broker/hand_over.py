"""How long a member that takes no locks has to wait for the owner of a queue.

Java and Go members that consume concurrently begin a queue at the stored offset, whoever has it.
A Python owner needs a moment after it was told: its handlers finish, it commits, it unlocks. What
it had in flight would come twice. So the one thing that every member asks before it begins, the
stored offset, is not answered before.
"""

from sparrowmq.broker.broker import Broker
from sparrowmq.net.connection import Connection
from sparrowmq.protocol.message import MessageQueue

LONGEST_S = 2.0
"""Of one answer. The Go client waits 3 s for it and Java's 5 s; both try again only after 20 s."""
CHANGE_S = 4.0
"""After members were told of a change nobody waits any more: Java and Go ask for one queue after
the other, and an owner whose handlers run for long would cost them `LONGEST_S` for each."""


def hand_over_s(
    broker: Broker, group_name: str, queue: MessageQueue, connection: Connection
) -> float:
    """How long the owner of a queue is waited for at most, before its offset is told; 0 when there
    is no other owner, when nobody told it, or when whoever asks locks queues by itself."""
    group = broker.consumers.group(group_name)
    asking = None if group is None else group.members.get(connection)
    if group is None or asking is None or asking.takes_locks or group.told_ms is None:
        return 0.0
    owner = broker.locks.owner(group_name, queue)
    if owner is None or owner == asking.client_id or group.find(owner) is None:
        return 0.0
    since_told_s = (broker.clock() - group.told_ms) / 1000
    return max(0.0, min(LONGEST_S, CHANGE_S - since_told_s))
