"""Offsets: the range of a queue, the progress of a group, and resets."""

from collections.abc import Awaitable

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.handlers.pull import move_parked
from sparrowmq.broker.handlers.table_changes import check_is_master
from sparrowmq.broker.stale_commits import is_stale, note_known
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import ConnectionLost, RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import Language, ResponseCode
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset, ResetConsumerOffset
from sparrowmq.protocol.headers.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    OffsetInEpoch,
    QueryConsumerOffset,
    SearchOffset,
    TimestampFound,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.offsets_body import ResetOffset
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.store import Boundary

routes: Routes[Broker] = Routes()


@routes.on(QueryConsumerOffset)
def query_consumer_offset(broker: Broker, request: Request[QueryConsumerOffset]) -> Reply:
    """Return the stored offset. A group without one starts at 0 if the queue is young or empty."""
    header = request.header
    offset = broker.offsets.get(header.consumer_group, header.topic, header.queue_id)
    if offset >= 0:
        if _takes_queue(broker, request):
            broker.offsets.applied(header.consumer_group, header.topic, header.queue_id)
            note_known(broker, request)
        if header.epoch is None:
            broker.positions.note_sent(
                request.connection,
                header.consumer_group,
                header.topic,
                header.queue_id,
                offset,
                broker.store.epochs.current,
            )
        return Reply(_in_epoch(broker, header.epoch, offset))
    if header.set_zero_if_not_found and _is_young(broker, header.topic, header.queue_id):
        broker.statistics.group_starts(header.consumer_group, header.topic, header.queue_id, 0)
        return Reply(_in_epoch(broker, header.epoch, 0))
    text = f"group {header.consumer_group} has no offset for {header.topic} queue {header.queue_id}"
    raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)


def _takes_queue(broker: Broker, request: Request[QueryConsumerOffset]) -> bool:
    """Whether a member asks where to begin a queue; tools ask too, while members are online."""
    group = broker.consumers.group(request.header.consumer_group)
    is_member = group is None or request.connection in group.members
    return is_member and not request.header.only_looks


def _is_young(broker: Broker, topic: str, queue_id: int) -> bool:
    """Whether the queue's first message ever is still there and recent in the log, or yet to come.

    If a queue never had a message, every start means 0. The client would ask for the end, and skip
    what is stored before that request: a gap that Apache's broker has had since 5.0.
    """
    low, high = broker.store.queue_range(topic, queue_id)
    if high == 0:
        config = broker.topics.get(topic)
        return config is not None and 0 <= queue_id < config.read_queue_nums
    first = broker.store.units(topic, queue_id, 0, 1)
    if not first or low > 0:
        return False
    return broker.store.max_log_offset - first[0][0] <= broker.config.young_queue_bytes


@routes.on(UpdateConsumerOffset)
def update_consumer_offset(broker: Broker, request: Request[UpdateConsumerOffset]) -> Reply:
    """Store an explicit commit. The Go client sends -1 for queues it never pulled: ignore those."""
    header = request.header
    if header.commit_offset >= 0:
        _check_commit(broker, header)
        if not is_stale(broker, request):
            _commit(broker, request)
    return Reply()


def _check_commit(broker: Broker, header: UpdateConsumerOffset) -> None:
    """Refuse bogus commits: offsets are kept forever, and made-up names must not fill the table."""
    if broker.is_handing_over:
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, broker.send_refusal)
    if header.topic not in broker.topics:
        text = f"topic {header.topic} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    # A group may have come to a slave while its master, which creates groups, was away.
    is_new = broker.groups.is_copy and broker.consumers.group(header.consumer_group) is not None
    if header.consumer_group not in broker.groups and not is_new:
        text = f"group {header.consumer_group} does not exist here: it never sent a heartbeat"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    # Not the topic's own number of queues: a topic that was shrunk may grow again
    most = broker.config.max_queues_per_topic
    if not 0 <= header.queue_id < most:
        text = f"queue {header.queue_id}, allowed are 0 to {most - 1}"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)


def _commit(broker: Broker, request: Request[UpdateConsumerOffset]) -> None:
    header = request.header
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    offset = header.commit_offset
    broker.offsets.commit(group, topic, queue_id, offset)
    if broker.offsets.get(group, topic, queue_id) == offset:
        note_known(broker, request)
    if broker.offsets.confirms(group, topic, queue_id, offset, request.connection):
        # It drops the queue now; without this, Java 4.9 and Go take it again only 20 s later.
        broker.notices.ask_to_rebalance(group, request.connection)


@routes.on(GetMaxOffset)
def get_max_offset(broker: Broker, request: Request[GetMaxOffset]) -> Reply:
    """Return the offset just past the last message that consumers may see."""
    header = request.header
    _, end = broker.store.visible_range(header.topic, header.queue_id)
    return _answer_offset(broker, request, end)


@routes.on(GetMinOffset)
def get_min_offset(broker: Broker, request: Request[GetMinOffset]) -> Reply:
    """Return the oldest offset that is still there."""
    header = request.header
    return Reply(OffsetFound(offset=broker.store.min_offset(header.topic, header.queue_id)))


@routes.on(SearchOffset)
def search_offset(broker: Broker, request: Request[SearchOffset]) -> Reply:
    """Return the offset at a store time."""
    header = request.header
    boundary = Boundary.UPPER if header.boundary_type.upper() == "UPPER" else Boundary.LOWER
    offset = broker.store.queue_offset_by_time(
        header.topic, header.queue_id, header.timestamp, boundary
    )
    _, end = broker.store.visible_range(header.topic, header.queue_id)
    return _answer_offset(broker, request, min(offset, end))


def _answer_offset(
    broker: Broker, request: Request[GetMaxOffset] | Request[SearchOffset], offset: int
) -> Reply:
    header = request.header
    if header.epoch is None:
        broker.positions.note_answer(request.connection, header.topic, header.queue_id, offset)
        return Reply(OffsetFound(offset=offset))
    end = broker.store.epochs.end_since(header.topic, header.queue_id, header.epoch)
    return Reply(_in_epoch(broker, header.epoch, offset, end))


def _in_epoch(
    broker: Broker, epoch: int | None, offset: int, valid_end: int | None = None
) -> OffsetFound:
    """The answer as the client understands it: `epoch` is what it sent, if anything."""
    if epoch is None:
        return OffsetFound(offset=offset)
    now = broker.store.epochs.current
    return OffsetInEpoch(offset=offset, epoch=now, valid_end=valid_end)


@routes.on(GetEarliestStoreTime)
def get_earliest_store_time(broker: Broker, request: Request[GetEarliestStoreTime]) -> Reply:
    """Return when the oldest message of a queue was stored; -1 if the queue is empty."""
    header = request.header
    timestamp = broker.store.earliest_store_time(header.topic, header.queue_id)
    return Reply(TimestampFound(timestamp=timestamp))


# ---- resetting a group to a time or an offset, whether or not it is online
#
# operator ── 222 ──▶ broker ── stored at once, commits ignored until the member has applied it
#                        ├── 220, one-way ──▶ Python members drop their queues and start over
#                        ├── waiting pulls of the group: answered with PULL_OFFSET_MOVED; others
#                        │   learn it by their next pull
#                        └── answer: each queue with the offset that is stored now
#
# Only Python members get 220: Java's and Go's clients suspend the whole consumer for 10 s then, on
# a thread that heartbeats need. Apache's broker has not sent it since 5.0 either.


@routes.on(InvokeResetOffset)
def reset_offset(broker: Broker, request: Request[InvokeResetOffset]) -> Awaitable[Reply]:
    """Reset a group; the answer has the stored offset of each queue."""
    header = request.header
    topic = _checked_topic(broker, header)
    targets = _targets(broker, header, topic)
    if not targets:
        text = f"topic {header.topic} has no queue that could be reset"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    for queue_id, offset in targets.items():
        broker.offsets.reset(header.group, header.topic, queue_id, offset)
    stored = {
        broker.queue(header.topic, queue_id): broker.offsets.get(
            header.group, header.topic, queue_id
        )
        for queue_id in targets
    }
    body = ResetOffset(offset_table=stored).to_json()
    notified = _notify_members(broker, header, body)
    # After the notice, so that a Python member has left its queues when the answer arrives.
    for queue_id, offset in targets.items():
        move_parked(broker, header.group, header.topic, queue_id, offset)
    audit(
        request,
        "reset group %s in topic %s to %s, %d members notified",
        header.group,
        header.topic,
        {queue.queue_id: offset for queue, offset in stored.items()},
        notified,
    )
    return broker.offset_saving.reply_when_saved(Reply(body=body))


def _checked_topic(broker: Broker, header: InvokeResetOffset) -> TopicConfig:
    check_is_master(broker)
    if broker.is_handing_over:
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, broker.send_refusal)
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
    """Notify live Python members; returns how many. One that misses it learns by its next pull."""
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
            continue  # the connection is ending, and that will be noticed
        notified += 1
    return notified
