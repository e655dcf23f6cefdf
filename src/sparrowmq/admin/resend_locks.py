"""One operator at a time sends a dead letter again: a broker's lock on the dead letter's queue.

    lock ─▶ was it sent before? ─▶ send ─▶ wait until the next one to ask would see it ─▶ unlock

Brokers lock queues for ordered consumers (41). No group consumes dead letters under the name that
operators use here, so these locks disturb no consumer. If an operator's process is killed, its lock
expires by itself, after 60 s unless the broker is configured otherwise.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.messages import READ_GROUP
from sparrowmq.protocol.headers.clients import LockBatch, UnlockBatch
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

_LOOKS = 100
_LOOK_S = 0.05
HELD_S = 30.0
"""How long an operator may rely on a lock: brokers expire it after 60 s at the earliest."""


@asynccontextmanager
async def locked(cluster: ClusterCalls, letter: MessageExt) -> AsyncIterator[None]:
    """Lock the queue of a dead letter. Raises AdminError if another operator holds it, or if the
    work took so long that the lock may have expired."""
    masters, _ = await cluster.masters_and_missing(brokers=[letter.broker_name])
    address = masters.get(letter.broker_name)
    if address is None:  # it was read from a slave, and no broker there grants locks
        yield
        return
    queue = MessageQueue(letter.topic, letter.broker_name, letter.queue_id)
    wanted = LockBatchRequest(
        consumer_group=READ_GROUP,
        # Several operators may share a client, those of one console do
        client_id=f"{cluster.client.client_id}#{id(asyncio.current_task())}",
        mq_set=frozenset({queue}),
    )
    await _take(cluster, address, wanted)
    try:
        async with asyncio.timeout(HELD_S):
            yield
    except TimeoutError as error:
        raise AdminError(
            f"it took more than {HELD_S:g} s, and another operator may send it then; run it again"
        ) from error
    finally:
        with suppress(AdminError):  # it expires by itself
            await cluster.call(address, UnlockBatch(), wanted.to_json())


async def _take(cluster: ClusterCalls, address: str, wanted: LockBatchRequest) -> None:
    for _ in range(_LOOKS):
        answer = await cluster.call(address, LockBatch(), wanted.to_json())
        if LockBatchResponse.from_json(answer.body).lock_ok_mq_set:
            return
        await asyncio.sleep(_LOOK_S)
    raise AdminError("another operator sends dead letters of this queue now; run it again later")
