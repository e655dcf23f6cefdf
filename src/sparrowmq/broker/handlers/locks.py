"""Locks of queues, which ordered consumers and all Python members take."""

from sparrowmq.broker.broker import Broker
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.clients import LockBatch, UnlockBatch
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse, UnlockBatchRequest

routes: Routes[Broker] = Routes()


@routes.on(LockBatch)
def lock_batch(broker: Broker, request: Request[LockBatch]) -> Reply:
    """Lock what is free; the answer lists what the client holds now."""
    wanted = _wanted(request.body)
    group = broker.consumers.group(wanted.consumer_group)
    member = None if group is None else group.members.get(request.connection)
    if member is not None:
        member.takes_locks = True
    got = broker.locks.lock(
        wanted.consumer_group,
        wanted.client_id,
        sorted(wanted.mq_set),
        tells_freed=bool(request.header.tells_freed),
    )
    return Reply(body=LockBatchResponse(lock_ok_mq_set=frozenset(got)).to_json())


@routes.on(UnlockBatch)
def unlock_batch(broker: Broker, request: Request[UnlockBatch]) -> Reply:
    """Free what the client holds."""
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
