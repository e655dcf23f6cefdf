"""Commits that are not stored, because their senders do not know how far the group is.

A commit may move a group back: a member that seeks wants that, and so does an operator. But most
lower commits are only late, and storing them would undo what others have handled since:

    who commits                    is late, because
    a member that waits for a      its owner is further on
    queue
    a member of an earlier log     it counts messages that are gone, whose offsets new ones have
"""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.queue_handover import belongs_to_another
from sparrowmq.net.routes import Request
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset


def is_stale(broker: Broker, request: Request[UpdateConsumerOffset]) -> bool:
    """Whether a commit must not be stored."""
    header = request.header
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    is_lower = header.commit_offset < broker.offsets.get(group, topic, queue_id)
    if is_lower and belongs_to_another(broker, group, topic, queue_id, request.connection):
        return True
    return _is_of_lost_messages(broker, request)


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
