"""Which member has which queue: locks that members take, and queues that the broker allocates.

Ordered consumers and all Python members lock the queues they consume. Members of RocketMQ 5 may
leave the allocation to the broker (QueryAssignment).
"""

from collections.abc import Awaitable, Sequence

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.groups import PULL
from sparrowmq.broker.handlers.table_changes import check_is_master
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.broker_stats import MessageRequestMode
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import (
    MessageQueueAssignment,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
)
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.clients import LockBatch, UnlockBatch
from sparrowmq.protocol.headers.groups import (
    GetAllMessageRequestModes,
    QueryAssignment,
    SetMessageRequestMode,
)
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse, UnlockBatchRequest
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic

routes: Routes[Broker] = Routes()


@routes.on(LockBatch)
def lock_batch(broker: Broker, request: Request[LockBatch]) -> Reply:
    """Lock the free queues; the answer lists the queues that the client holds now."""
    if broker.slave_reads is not None:
        broker.slave_reads.check_locking(broker.locks)
    wanted = _wanted(request.body)
    group = broker.consumers.group(wanted.consumer_group)
    member = None if group is None else group.members.get(request.connection)
    if member is not None:
        member.takes_locks = True
    got = broker.locks.lock(
        wanted.consumer_group,
        wanted.client_id,
        sorted(wanted.mq_set),
        notify_when_freed=bool(request.header.tells_freed),
    )
    return Reply(body=LockBatchResponse(lock_ok_mq_set=frozenset(got)).to_json())


@routes.on(UnlockBatch)
def unlock_batch(broker: Broker, request: Request[UnlockBatch]) -> Reply:
    """Unlock the queues that the client holds."""
    wanted: UnlockBatchRequest = _wanted(request.body)
    broker.locks.unlock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
    return Reply()


def _wanted(body: bytes) -> LockBatchRequest:
    try:
        wanted = LockBatchRequest.from_json(body)
    except BodyError as error:
        text = f"the lock request's body cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    if not wanted.consumer_group or not wanted.client_id:
        text = "a lock request needs consumerGroup and clientId"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    return wanted


_KEEP_WHAT_YOU_HAVE = b"{}"
"""Without a list, unlike with an empty one, a member keeps its queues."""


@routes.on(QueryAssignment)
async def query_assignment(broker: Broker, request: Request[QueryAssignment]) -> Reply:
    """Compute the asking member's queues, as the members themselves would."""
    try:
        wanted = QueryAssignmentRequest.from_json(request.body)
    except BodyError as error:
        text = f"the assignment query cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    queues = await broker.cluster_queues.queues_of(wanted.topic)
    share = None if queues is None else _share(broker, wanted, queues)
    if share is None:
        return Reply(body=_KEEP_WHAT_YOU_HAVE)
    assignments = tuple(MessageQueueAssignment(message_queue=queue, mode=PULL) for queue in share)
    return Reply(body=QueryAssignmentResponse(message_queue_assignments=assignments).to_json())


def _share(
    broker: Broker, wanted: QueryAssignmentRequest, queues: Sequence[MessageQueue]
) -> Sequence[MessageQueue] | None:
    if wanted.message_model is MessageModel.BROADCASTING:
        return queues
    group = broker.consumers.group(wanted.consumer_group)
    if group is None:
        return None
    return allocate(wanted.strategy_name or "AVG", wanted.client_id, queues, group.client_ids)


def allocate(
    strategy: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue] | None:
    """One member's share of the sorted queues; None for a strategy that the broker does not know.

    The same arithmetic as the clients' AVG and AVG_BY_CIRCLE; a test compares them.
    """
    members = sorted(client_ids)
    if strategy not in ("AVG", "AVG_BY_CIRCLE"):
        return None
    if client_id not in members:
        return []
    index = members.index(client_id)
    if strategy == "AVG_BY_CIRCLE":
        return list(queues[index :: len(members)])
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


@routes.on(SetMessageRequestMode)
def set_message_request_mode(
    broker: Broker, request: Request[SetMessageRequestMode]
) -> Awaitable[Reply]:
    """Remember how a group consumes a topic; only pulling can be chosen."""
    try:
        wanted = MessageRequestMode.from_json(request.body)
    except BodyError as error:
        text = f"the message request mode cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    check_is_master(broker)
    _check(broker, wanted)
    broker.request_modes.put(wanted)
    audit(
        request,
        "set mode %s for group %s in topic %s",
        wanted.mode,
        wanted.consumer_group,
        wanted.topic,
    )
    return broker.saving.reply_when_saved(broker.request_modes, Reply())


def _check(broker: Broker, wanted: MessageRequestMode) -> None:
    if is_retry_topic(wanted.topic):
        text = f"topic {wanted.topic} is a retry topic, which is always pulled"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    if wanted.topic not in broker.topics:
        text = f"topic {wanted.topic} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    if broker.groups.find(wanted.consumer_group) is None:
        text = f"group {wanted.consumer_group} does not exist on {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    if wanted.mode != PULL:
        text = f"mode {wanted.mode} is not served by this broker, allowed is PULL"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)


@routes.on(GetAllMessageRequestModes)
def get_all_message_request_modes(
    broker: Broker, request: Request[GetAllMessageRequestModes]
) -> Reply:
    """Return the modes that were set, for slaves and operators."""
    return Reply(body=broker.request_modes.table().to_json())
