"""Queue locks: a queue changes hands only when its owner has finished and committed.

The broker's queue locks serve as leases. The owner drains, commits and unlocks; the taker begins
when it has the lock. A dead owner's locks are freed when its connection closes.

RocketMQ locks only ordered queues. Locks on concurrent queues are our addition, because they close
the gap in which both members work on a queue: the old owner still has messages in its handlers, and
the new one starts at the progress that was stored before them. Java and Go members take no lock
when they consume concurrently, and no member waits for them. Our brokers make them wait for a
Python owner instead, by parking their pulls.

While a master is away, its slave grants the locks of concurrent queues. Only the master grants
those of ordered queues: a slave cut off from a living master would grant them a second time.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from sparrowmq.client.broker_calls import address_of, call, master_address
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import LockBatch, UnlockBatch
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse
from sparrowmq.protocol.message import MessageQueue


class Locks(NamedTuple):
    """The answer to a lock request."""

    ours: set[MessageQueue]
    others: set[MessageQueue]
    """Locked by another member."""
    sessions: dict[MessageQueue, str]
    """Queues whose broker answered, with the session that we had there."""
    asked_s: float


NO_LOCKS = Locks(set(), set(), {}, 0.0)


class LockRequests:
    """Locks and unlocks queues for one consumer; what it holds is in `QueueOwnership`."""

    def __init__(
        self, client: ClientCore, group: str, log: logging.Logger, *, only_masters: bool
    ) -> None:
        """With `only_masters`, a slave's locks do not count even while its master is away."""
        self._client = client
        self._group = group
        self._log = log
        self._address_of = master_address if only_masters else address_of

    async def take(self, queues: Iterable[MessageQueue], *, tells_freed: bool = False) -> Locks:
        """Lock or renew. A queue whose broker cannot be asked is in neither `ours` nor `others`.

        With `tells_freed` our own brokers notify the consumer when one of `others` becomes free.
        """
        header = LockBatch(tells_freed=tells_freed or None)
        ours: set[MessageQueue] = set()
        others: set[MessageQueue] = set()
        in_session: dict[MessageQueue, str] = {}
        sessions = self._client.sessions
        asked_s = sessions.now_s()
        for broker_name, mine in _by_broker(queues).items():
            try:
                address = await self._address_of(self._client, mine[0].topic, broker_name)
                session = sessions.name(address)  # read it first: it may end while we ask
                response = await call(self._client, address, header, self._body(mine))
                got = LockBatchResponse.from_json(response.body).lock_ok_mq_set
            except (ClientError, NetError, ProtocolError) as error:
                self._log.debug("no locks on %s: %s", broker_name, error)
                continue
            ours |= got
            others |= set(mine) - got
            in_session.update(dict.fromkeys(mine, session))
        return Locks(ours, others, in_session, asked_s)

    async def give_back(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock; a broker that cannot be reached lets the locks expire."""
        for broker_name, mine in _by_broker(queues).items():
            try:
                address = await self._address_of(self._client, mine[0].topic, broker_name)
                await call(self._client, address, UnlockBatch(), self._body(mine))
            except (ClientError, NetError) as error:
                self._log.info("locks on %s not given back: %s", broker_name, error)

    def _body(self, queues: Iterable[MessageQueue]) -> bytes:
        return LockBatchRequest(
            consumer_group=self._group,
            client_id=self._client.client_id,
            mq_set=frozenset(queues),
        ).to_json()


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.broker_name, []).append(queue)
    return found
