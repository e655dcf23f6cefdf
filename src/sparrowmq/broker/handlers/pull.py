"""Pulling: records go out exactly as the log holds them; a pull that finds nothing waits.

This is the other half of the hot path. A pull that finds messages is answered inside the read
callback with slices of the mapped log, undecoded. A pull that finds nothing is parked as a small
record (`arrivals`), and the send that ends its wait answers it in the same turn of the loop. Only a
read that would wait for the device becomes a task: the loop must not block on a disk. Checks for
what is rare (handover, quotas, shortened queues, resets) ask a set or a flag first, so that they
cost next to nothing while nothing of the kind is going on.

A slave answers from its copy of the log in the same way, with one difference: it never moves a
client's position. Its copy may begin later and end earlier than the master's log, so an offset that
is out of its range, or that it cannot judge, may still be valid. Such a pull is held for a moment
and then sent to the master with the offset it came with. A master that waits for its slaves does
the same.
"""

from collections.abc import Awaitable

import msgspec

from sparrowmq.broker.arrivals import QueueKey
from sparrowmq.broker.broker import Broker, BrokerState
from sparrowmq.broker.config import MASTER_ID
from sparrowmq.broker.positions import resume_offset
from sparrowmq.broker.pull_filter import PullFilter, filter_for
from sparrowmq.broker.queue_handover import handover_wait_s, offset_after_handover
from sparrowmq.broker.replication.read_places import HeldReads
from sparrowmq.broker.slave_pulls import held_back, not_moved
from sparrowmq.broker.traffic.limited_reads import within_quota
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.pull import LitePullMessage, Pulled, PulledInEpoch, PullMessage
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from sparrowmq.store.messages import QueueRead, ReadStatus
from sparrowmq.store.store import ColdRead

routes: Routes[Broker] = Routes()
_DRAINING = BrokerState.DRAINING
_SHORT_POLL_S = 1.0
"""How long a pull waits when it asks to wait but gives no timeout."""
_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
}
_NOT_READ = (ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.OFFSET_FOUND_NULL)
"""A master skips these, because the messages are gone; a slave's master may still have them."""
_EMPTY = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)


@routes.on(PullMessage, LitePullMessage)
def pull_message(broker: Broker, request: Request[PullMessage]) -> Handled:
    """Return messages of a queue from an offset on, or wait for them."""
    if broker.state is _DRAINING:
        return reject(broker)
    header = request.header
    if broker.held_reads is not None and (why := broker.held_reads.why_not(header)):
        return _held(broker, request, why)
    group = _readable_group(broker, request)
    accepts = filter_for(broker, header, group)
    if header.consumer_group in broker.watched.names:
        wait_s = min(handover_wait_s(broker, header, request.connection), _poll_s(broker, header))
        if wait_s > 0 and header.sys_flag & PULL_SUSPEND:
            next_offset = offset_after_handover(broker, header, wait_s)
            return _answer_after_handover(broker, request, next_offset)
        accepts = within_quota(broker, header.consumer_group, accepts)
    if header.epoch is not None or broker.store.epochs.has_doubts:
        end = broker.positions.valid_end(
            request.connection,
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.epoch,
        )
        if end is not None:
            return _sent_back(broker, request, end)
    if header.sys_flag & PULL_COMMIT_OFFSET and not broker.is_handing_over:
        broker.offsets.carry(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
    reset = broker.offsets.redirect(
        header.consumer_group, header.topic, header.queue_id, request.connection
    )
    if reset is not None and broker.slave_reads is None:
        return _moved_to(broker, request, reset, "the offset was reset")
    found = accepts.read(broker, header, header.queue_offset)
    if isinstance(found, ColdRead):
        return _answer_cold(broker, request, found)
    return _answer(broker, request, found, accepts)


def _readable_group(broker: Broker, request: Request[PullMessage]) -> SubscriptionGroupConfig:
    header = request.header
    group = broker.groups.find(header.consumer_group)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"group {header.consumer_group} does not exist and broker {broker.config.broker_name}"
            " does not create groups",
        )
    if not group.consume_enable:
        text = f"group {header.consumer_group} is switched off (consumeEnable is false)"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    topic = broker.topics.get(header.topic)
    if topic is None:
        text = f"topic {header.topic} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    if not is_readable(topic.perm):
        text = f"topic {header.topic} cannot be read (perm {topic.perm} lacks 4)"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    if not broker.groups.is_readable(header.consumer_group, header.topic):
        text = f"group {header.consumer_group} was forbidden to read topic {header.topic}"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    if not 0 <= header.queue_id < topic.read_queue_nums:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"queue {header.queue_id} of topic {header.topic} does not exist,"
            f" allowed are 0 to {topic.read_queue_nums - 1}",
        )
    return group


async def _answer_after_handover(
    broker: Broker, request: Request[PullMessage], next_offset: Awaitable[int]
) -> Reply:
    header = request.header
    offset = await next_offset
    # Repeating an offset does not make it any more certain.
    is_known = offset != header.queue_offset
    epoch = broker.store.epochs.current if is_known else header.epoch or 0
    code, text = ResponseCode.PULL_RETRY_IMMEDIATELY, "the queue is being handed over"
    return _nothing_found(broker, request, offset, code, text, epoch=epoch)


def _answer(
    broker: Broker, request: Request[PullMessage], found: QueueRead, accepts: PullFilter
) -> Handled:
    header = request.header
    epoch = broker.store.epochs.current
    if found.status is ReadStatus.FOUND:
        return _reply(broker, request, found, epoch)
    code = _code(found.status, header.queue_offset)
    may_wait = header.sys_flag & PULL_SUSPEND and not broker.arrivals.is_full
    if may_wait and code is ResponseCode.PULL_NOT_FOUND:
        if broker.held_reads is not None and found.status in _NOT_READ:
            return _held(broker, request, _not_here(broker.held_reads, found))
        broker.arrivals.park(
            ParkedPull(
                broker,
                request,
                (header.topic, header.queue_id),
                header.queue_offset,
                epoch,
                accepts,
            ),
            _poll_s(broker, header),
        )
        if found.has_unsynced:
            broker.durability.request_flush()
        return None
    if broker.held_reads is not None and _is_for_master(found.status, code):
        return _held(broker, request, _not_here(broker.held_reads, found))
    if code is ResponseCode.PULL_OFFSET_MOVED:
        broker.log.warning(
            "group %s asked for offset %d of %s queue %d, which has %d to %d; sent to %d",
            header.consumer_group,
            header.queue_offset,
            header.topic,
            header.queue_id,
            found.min_offset,
            found.max_offset,
            found.next_offset,
        )
    return _reply(broker, request, found, epoch)


async def _answer_cold(broker: Broker, request: Request[PullMessage], cold: ColdRead) -> Reply:
    """Read from the device in a worker. The queue has messages, so the pull is not parked."""
    epoch = broker.store.epochs.current
    began_ms = broker.monotonic()
    found = await broker.workers.run(cold.load)
    header = request.header
    broker.statistics.read_from_disk(
        header.consumer_group,
        header.topic,
        header.queue_id,
        count=found.count,
        size=found.size,
        began_ms=began_ms,
        now_ms=broker.monotonic(),
    )
    if broker.held_reads is not None and found.status in _NOT_READ:
        return not_moved(broker, request, _not_here(broker.held_reads, found))
    return _reply(broker, request, found, epoch, is_cold=True)


def _is_for_master(status: ReadStatus, code: ResponseCode) -> bool:
    """Whether a broker that moves no position defers to its master, or to its own next start."""
    return code is ResponseCode.PULL_OFFSET_MOVED or status in _NOT_READ


def _held(broker: Broker, request: Request[PullMessage], why: str) -> Handled:
    return held_back(broker, request, why, _poll_s(broker, request.header))


def _not_here(reads: HeldReads, found: QueueRead) -> str:
    return f"{found.status.value} on {reads.role}"


def _poll_s(broker: Broker, header: PullMessage) -> float:
    """How long a pull that asks to wait may wait."""
    wait_s = header.suspend_timeout_millis / 1000 or _SHORT_POLL_S
    return min(max(0.0, wait_s), broker.config.long_poll_s)


# ---- pulls that wait


class ParkedPull(msgspec.Struct, eq=False):
    """A pull that waits for its queue to grow.

    A struct, because one is made for nearly every pull of a consumer that keeps up.
    """

    broker: Broker
    request: Request[PullMessage]
    key: QueueKey
    offset: int
    epoch: int
    """The epoch in which `offset` was learned."""
    accepts: PullFilter
    deadline_s: float = 0.0

    def retry(self) -> bool:
        """Read the queue again; returns whether the request was answered.

        Messages that the filter rejects advance the offset without waking the client.
        """
        broker, request = self.broker, self.request
        epoch = broker.store.epochs.current
        found = self.accepts.read(broker, request.header, self.offset)
        if isinstance(found, ColdRead):
            later: Awaitable[Reply] = _answer_cold(broker, request, found)
            request.connection.answer_later(request, later)
            return True
        if found.status is ReadStatus.FOUND:
            request.answer(_reply(broker, request, found, epoch))
            return True
        code = _code(found.status, self.offset)
        if broker.held_reads is not None and _is_for_master(found.status, code):
            return False  # `give_up` answers it, at the offset it has
        if found.status is ReadStatus.NO_MATCHED_MESSAGE:
            self.offset, self.epoch = found.next_offset, epoch
            if found.next_offset < found.max_offset:
                broker.arrivals.announce(*self.key)  # a long run was rejected: other pulls go first
            elif found.max_offset < broker.store.max_offset(*self.key):
                broker.durability.request_flush()
            return False
        if code is ResponseCode.PULL_NOT_FOUND:
            if found.has_unsynced:
                broker.durability.request_flush()
            return False
        request.answer(_reply(broker, request, found, epoch))
        return True

    def give_up(self) -> None:
        """Answer that nothing was found; what the filter skipped need not be read again."""
        moved = self.offset != self.request.header.queue_offset
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if moved else ResponseCode.PULL_NOT_FOUND
        text = "no message came in time"
        self.request.answer(
            _nothing_found(self.broker, self.request, self.offset, code, text, epoch=self.epoch)
        )


def move_parked(broker: Broker, group: str, topic: str, queue_id: int, offset: int) -> None:
    """A group was reset: answer its pulls that wait on the queue with the new offset."""
    parked = broker.arrivals.take(
        (topic, queue_id), lambda pull: pull.request.header.consumer_group == group
    )
    connections = [pull.request.connection for pull in parked]
    broker.offsets.sent_to_reset(group, topic, queue_id, connections)
    for pull in parked:
        pull.request.answer(_moved_to(broker, pull.request, offset, "the offset was reset"))


def reject(broker: Broker) -> Reply:
    """The answer to every pull, parked or new, while the broker is draining."""
    broker.rejected_pulls += 1
    text = f"broker {broker.config.broker_name} is stopping"
    return Reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=text)


# ---- answers


def _reply(
    broker: Broker,
    request: Request[PullMessage],
    found: QueueRead,
    epoch: int,
    is_cold: bool = False,
) -> Reply:
    """The answer to a read of the queue, with messages or without."""
    header = request.header
    pulled = broker.offsets.pulled
    pulled[header.consumer_group, header.topic, header.queue_id] = found.next_offset
    is_found = found.status is ReadStatus.FOUND
    if is_found and header.epoch is None and not broker.store.epochs.has_doubts:
        answer = Pulled(  # as in `_pulled`, for nearly every pull of a Java client
            suggest_which_broker_id=(
                _suggest(broker, header, found, is_cold=is_cold)
                if broker.reads.others
                else MASTER_ID
            ),
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        )
        return Reply(answer, chunks=found.chunks, body_bytes=found.size)
    held = found.min_offset, found.max_offset
    is_older = header.epoch is not None and header.epoch != epoch
    valid_end = _end_of_range(broker, header, found) if is_older else None
    if is_found:
        suggested = _suggest(broker, header, found, is_cold=is_cold)
        answer = _pulled(broker, request, found.next_offset, *held, epoch, suggested, valid_end)
        return Reply(answer, chunks=found.chunks, body_bytes=found.size)
    return _nothing_found(
        broker,
        request,
        found.next_offset,
        _code(found.status, header.queue_offset),
        found.status.value,
        epoch=epoch,
        held=held,
        valid_end=valid_end,
    )


def _end_of_range(broker: Broker, header: PullMessage, found: QueueRead) -> int | None:
    """The end of the valid part of a range that one of our clients planned in an earlier epoch.

    None with PULL_OFFSET_MOVED: there the field would mean that the position itself is invalid.
    """
    if _code(found.status, header.queue_offset) is ResponseCode.PULL_OFFSET_MOVED:
        return None
    assert header.epoch is not None
    return broker.store.epochs.end_since(header.topic, header.queue_id, header.epoch)


def _sent_back(broker: Broker, request: Request[PullMessage], end: int) -> Handled:
    """Send back a client whose position counts messages that are gone: they ended at `end`."""
    if broker.held_reads is not None:
        return _held(broker, request, f"the queue got shorter, says {broker.held_reads.role}")
    header = request.header
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    target = end
    if not header.epoch:
        stored = broker.offsets.get(group, topic, queue_id)
        carried = header.commit_offset if header.sys_flag & PULL_COMMIT_OFFSET else -1
        target = resume_offset(end, stored, carried)
    broker.log.warning(
        "group %s pulled %d of %s queue %d, but messages of its epoch end at %d; redirected to %d",
        group,
        header.queue_offset,
        topic,
        queue_id,
        end,
        target,
    )
    # Our clients resume at the valid end they are given, or at their own progress if that is lower.
    valid_end = end if header.epoch else target
    return _moved_to(broker, request, target, "the queue got shorter", valid_end=valid_end)


def _moved_to(
    broker: Broker,
    request: Request[PullMessage],
    offset: int,
    why: str,
    valid_end: int | None = None,
) -> Reply:
    code, epoch = ResponseCode.PULL_OFFSET_MOVED, broker.store.epochs.current
    return _nothing_found(broker, request, offset, code, why, epoch=epoch, valid_end=valid_end)


def _nothing_found(
    broker: Broker,
    request: Request[PullMessage],
    next_offset: int,
    code: ResponseCode,
    why: str,
    *,
    epoch: int,
    held: tuple[int, int] | None = None,
    valid_end: int | None = None,
) -> Reply:
    """The answer to every pull that gets no messages; `next_offset` was learned in `epoch`.

    `held` is the queue's range of offsets, if the caller has already read it.
    """
    header = request.header
    low, high = held or broker.store.visible_range(header.topic, header.queue_id)
    suggested = _suggest(broker, header)
    answer = _pulled(broker, request, next_offset, low, high, epoch, suggested, valid_end)
    return Reply(answer, code=code, remark=why)


def _suggest(
    broker: Broker, header: PullMessage, found: QueueRead | None = None, *, is_cold: bool = False
) -> int:
    """The broker id that an answer suggests."""
    if not broker.reads.others:
        return MASTER_ID
    # None if it was deleted while the pull waited, or is new on a slave, which creates no groups.
    group = broker.groups.get(header.consumer_group)
    group = group or SubscriptionGroupConfig(group_name=header.consumer_group)
    is_busy = bool(broker.busy_reason)
    return broker.reads.suggest(group, header, found, is_cold=is_cold, is_busy=is_busy)


def _pulled(
    broker: Broker,
    request: Request[PullMessage],
    next_offset: int,
    min_offset: int,
    max_offset: int,
    epoch: int,
    suggested: int,
    valid_end: int | None = None,
) -> Pulled:
    """Our clients learn the epoch; for others the broker notes which offset they were sent to."""
    header = request.header
    if header.epoch is not None:
        return PulledInEpoch(
            suggest_which_broker_id=suggested,
            next_begin_offset=next_offset,
            min_offset=min_offset,
            max_offset=max_offset,
            epoch=epoch,
            valid_end=valid_end,
        )
    if broker.store.epochs.has_doubts:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        broker.positions.note_sent(request.connection, group, topic, queue_id, next_offset, epoch)
    return Pulled(
        suggest_which_broker_id=suggested,
        next_begin_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
    )


def _code(status: ReadStatus, offset: int) -> ResponseCode:
    if offset == 0 and status in _EMPTY:
        return ResponseCode.PULL_NOT_FOUND
    return _CODES[status]
