"""Commits that are not stored, because their senders do not know how far the group is.

A commit may move a group back: a member that seeks wants that, and so does an operator. But most
lower commits are only late, and storing them would undo what others have handled since:

    who commits                    is late, because
    a member that waits for a      its owner is further on
    queue
    a member that continued at a   the slave lacked what the master had answered before it was lost
    slave                          or parted from it; the master still has that, or got more from
                                   another slave
    a member of an earlier log     it counts messages that are gone, whose offsets new ones have

So on a master with slaves a member moves its group back only if it knows the progress that it takes
back: this broker told it where to begin, or it has stored as much itself, and no other member has
been further since. What it handles before that is repeated, and nothing is skipped: all of it was
handled before. Members that lock their queues compare their progress with the broker's by
themselves, and operators' tools mean what they say.
"""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import ReplicationPeer
from sparrowmq.broker.queue_handover import belongs_to_another
from sparrowmq.net.routes import Request
from sparrowmq.protocol.headers.offsets import QueryConsumerOffset, UpdateConsumerOffset


def is_stale(broker: Broker, request: Request[UpdateConsumerOffset]) -> bool:
    """Whether a commit must not be stored."""
    header = request.header
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    if header.commit_offset < broker.offsets.get(group, topic, queue_id) and (
        belongs_to_another(broker, group, topic, queue_id, request.connection)
        or _knows_less(broker, request)
    ):
        return True
    return _is_of_lost_messages(broker, request)


def note_known(
    broker: Broker, request: Request[UpdateConsumerOffset] | Request[QueryConsumerOffset]
) -> None:
    """The sender knows the stored offset: it was told it to begin there, or has just stored it."""
    if _may_be_read_elsewhere(broker):
        header = request.header
        place = header.consumer_group, header.topic, header.queue_id
        broker.offsets.note_known(*place, request.connection)


def _may_be_read_elsewhere(broker: Broker) -> bool:
    """Whether there are slaves: their readers may know less than this broker."""
    is_beside_apache = broker.config.replication_peer is ReplicationPeer.APACHE
    return bool(broker.replication.known_slaves.slaves) or is_beside_apache


def _knows_less(broker: Broker, request: Request[UpdateConsumerOffset]) -> bool:
    """Whether a lower commit comes from a member that may not know the stored offset."""
    header = request.header
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    if not _may_be_read_elsewhere(broker):
        return False
    if broker.offsets.is_known_to(group, topic, queue_id, request.connection):
        return False
    if broker.offsets.get(group, topic, queue_id) > broker.store.max_offset(topic, queue_id):
        return False  # no member handled what was never there
    live = broker.consumers.group(group)
    member = None if live is None else live.members.get(request.connection)
    # Java's and Go's members commit one-way, and commit to a master that has just returned up to
    # 30 s before their first heartbeat there. Tools wait for the answer.
    return request.is_oneway if member is None else not member.takes_locks


def _is_of_lost_messages(broker: Broker, request: Request[UpdateConsumerOffset]) -> bool:
    """Whether a commit counts messages that are gone and whose offsets new messages have by now."""
    header = request.header
    end = broker.positions.valid_end(
        request.connection,
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.commit_offset,
        header.epoch,
    )
    if end is None:
        return False
    broker.log.info(
        "group %s committed %d of %s queue %d, past the end %d of its epoch; commit ignored",
        header.consumer_group,
        header.commit_offset,
        header.topic,
        header.queue_id,
        end,
    )
    return True
