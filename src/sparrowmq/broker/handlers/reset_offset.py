"""Moving a group to a time or an offset, whether it is online or not.

operator ── 222 ──▶ broker ── stored at once, commits ignored until the member has applied it
                       ├── 220, one-way ──▶ Python members drop their queues and start anew
                       ├── waiting pulls of the group: answered with PULL_OFFSET_MOVED; others
                       │   learn it by their next pull
                       └── answer: each queue with the offset that is stored now

Only Python members get 220: Java's and Go's clients suspend the whole consumer for 10 s then, on a
thread that heartbeats need. Apache's broker has not sent it since 5.0 either.
"""

from collections.abc import Awaitable

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import MASTER_ID
from sparrowmq.broker.handlers.pull import move_parked
from sparrowmq.net.errors import ConnectionLost, RequestRefused
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import Language, ResponseCode
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset, ResetConsumerOffset
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import ResetOffset
from sparrowmq.protocol.topic_config import TopicConfig

routes: Routes[Broker] = Routes()


@routes.on(InvokeResetOffset)
def reset_offset(broker: Broker, request: Request[InvokeResetOffset]) -> Awaitable[Reply]:
    """Move a group; the answer tells for each queue what is stored now."""
    header = request.header
    topic = _checked_topic(broker, header)
    targets = _targets(broker, header, topic)
    if not targets:
        text = f"topic {header.topic} has no queue that could be reset"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    for queue_id, offset in targets.items():
        broker.offsets.reset(header.group, header.topic, queue_id, offset)
    stored = {
        MessageQueue(header.topic, broker.config.broker_name, queue_id): broker.offsets.get(
            header.group, header.topic, queue_id
        )
        for queue_id in targets
    }
    body = ResetOffset(offset_table=stored).to_json()
    notified = _notify_members(broker, header, body)
    # After the notice, so that a Python member has left its queues when the answer arrives.
    for queue_id, offset in targets.items():
        move_parked(broker, header.group, header.topic, queue_id, offset)
    broker.log.info(
        "audit: %s reset group %s in topic %s to %s, %d members notified",
        request.connection.peer,
        header.group,
        header.topic,
        {queue.queue_id: offset for queue, offset in stored.items()},
        notified,
    )
    return broker.offset_saving.reply_when_saved(Reply(body=body))


def _checked_topic(broker: Broker, header: InvokeResetOffset) -> TopicConfig:
    if broker.config.broker_id != MASTER_ID:
        text = "offsets are reset on the master, this broker is a slave"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    topic = broker.topics.get(header.topic)
    if topic is None:
        text = f"topic {header.topic} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    has_progress = bool(broker.offsets.queues(header.group, header.topic))
    if header.group not in broker.groups and not has_progress:
        text = f"group {header.group} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    live = broker.consumers.group(header.group)
    if live is not None and live.is_broadcasting:
        text = (
            f"group {header.group} is BROADCASTING: its members keep their offsets themselves, so"
            " that there is nothing to reset here"
        )
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return topic


def _targets(broker: Broker, header: InvokeResetOffset, topic: TopicConfig) -> dict[int, int]:
    """Queue id to its new offset."""
    if header.queue_id < 0:
        return {queue_id: _by_time(broker, header, queue_id) for queue_id in _all(topic)}
    if header.queue_id not in _all(topic):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"queue {header.queue_id} of topic {header.topic} does not exist,"
            f" allowed are 0 to {topic.read_queue_nums - 1}",
        )
    if header.offset is None or header.offset == -1:
        return {header.queue_id: _by_time(broker, header, header.queue_id)}
    low, high = broker.store.visible_range(header.topic, header.queue_id)
    if not low <= header.offset <= high:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"offset {header.offset} is not in queue {header.queue_id} of topic {header.topic},"
            f" which has {low} to {high}",
        )
    return {header.queue_id: header.offset}


def _all(topic: TopicConfig) -> range:
    return range(topic.read_queue_nums)


def _by_time(broker: Broker, header: InvokeResetOffset, queue_id: int) -> int:
    _, offset = broker.store.visible_range(header.topic, queue_id)
    if header.timestamp >= 0:
        at = broker.store.queue_offset_by_time(header.topic, queue_id, header.timestamp)
        offset = min(offset, at)
    stored = broker.offsets.get(header.group, header.topic, queue_id)
    return offset if header.is_force or stored < 0 else min(offset, stored)


def _notify_members(broker: Broker, header: InvokeResetOffset, body: bytes) -> int:
    """How many live members were notified. One that misses it learns it by its next pull."""
    group = broker.consumers.group(header.group)
    if group is None:
        return 0
    notice = ResetConsumerOffset(
        topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=True
    )
    notified = 0
    for connection, member in tuple(group.members.items()):
        if member.language != Language.PYTHON.name:
            continue
        try:
            connection.send_oneway(notice, body)
        except ConnectionLost:
            continue  # its own end is on the way and will be noticed
        notified += 1
    return notified
