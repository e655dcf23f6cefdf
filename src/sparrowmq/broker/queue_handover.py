"""Queue handover: members that take no locks get no messages of a queue until its owner lets go.

Java and Go members that consume concurrently begin a queue at the stored offset as soon as the
rebalance gives it to them, even while another member still has it. A Python owner needs a moment
after it was notified of the rebalance: its handlers finish, it commits, it unlocks. Until then the
stored offset is too low, and the messages that it has in flight would be consumed twice. So pulls
of the new member wait as if no message had come, and are then answered with the offset at which to
continue:

    pull ─┬─ no other member holds the queue, or no rebalance was announced lately ─▶ served
          └─ waits ── unlocked, owner gone, time up ─▶ nothing found; next offset: the stored one

The broker cannot refuse such pulls instead: those clients would try again only seconds later.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.net.connection import Connection
from sparrowmq.protocol.headers.pull import PullMessage

LONGEST_S = 15.0
"""Counted from the notice of a rebalance: as long as Python members wait for each other."""


def handover_wait_s(broker: Broker, header: PullMessage, connection: Connection) -> float:
    """How long a pull has to wait at most for the owner of its queue.

    Groups that do not rebalance are served without looking at locks.
    """
    group = header.consumer_group
    began_ms = broker.watched.rebalancing.get(group)
    if began_ms is None:
        return 0.0
    left_s = LONGEST_S - (broker.monotonic() - began_ms) / 1000
    if left_s <= 0:
        broker.watched.end_rebalance(group)
        return 0.0
    is_kept = belongs_to_another(broker, group, header.topic, header.queue_id, connection)
    return left_s if is_kept else 0.0


def belongs_to_another(
    broker: Broker, group_name: str, topic: str, queue_id: int, connection: Connection
) -> bool:
    """Whether another member holds the queue and the asking member takes no locks itself."""
    group = broker.consumers.group(group_name)
    asking = None if group is None else group.members.get(connection)
    if group is None or asking is None or asking.takes_locks:
        return False
    owner = broker.locks.owner(group_name, broker.queue(topic, queue_id))
    return owner is not None and owner != asking.client_id and group.find(owner) is not None


def offset_after_handover(
    broker: Broker, header: PullMessage, wait_s: float
) -> Coroutine[Any, Any, int]:
    """The offset to pull next, once the owner has let go or `wait_s` has passed."""
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    # Looked up now: the lock may be gone when the task that answers begins.
    ended = broker.locks.ended_event(group, broker.queue(topic, queue_id))
    stored_before = broker.offsets.get(group, topic, queue_id)
    return _offset_after(broker, header, ended, wait_s, stored_before)


async def _offset_after(
    broker: Broker, header: PullMessage, ended: asyncio.Event, wait_s: float, stored_before: int
) -> int:
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await ended.wait()
    stored = broker.offsets.get(header.consumer_group, header.topic, header.queue_id)
    return _next_offset(header.queue_offset, stored_before, stored)


def _next_offset(asked: int, stored_before: int, stored: int) -> int:
    """Move forward to what the owner stored meanwhile. Move back only if nothing was stored before:
    the member then had to guess where to begin, and may have guessed too high."""
    return stored if stored > asked or stored_before < 0 <= stored else asked
