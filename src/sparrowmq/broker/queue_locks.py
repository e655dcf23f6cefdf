"""Locks of queues: held by one client of a group at a time, as long as it renews them.

Ordered consumers lock what they consume, and Python members all queues they hold. A lock ends when
its owner unlocks it or is gone; clients that were refused it or wait for its end are then notified:

    locked ─┬─ unlocked, owner gone, taken over after its time ─▶ ended: waiters are notified
            └─ not renewed in time: free for the next client that asks
"""

import asyncio
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sparrowmq.clock import Clock
from sparrowmq.protocol.message import MessageQueue

_MOST_LOCKS = 1_000_000
"""Some 300 MB. As in Apache's broker, any client may lock queues, even of missing topics."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int
    refused: dict[str, None] = field(default_factory=dict)
    """Clients to notify when the lock ends; a dict keeps their order."""
    ended: asyncio.Event | None = None
    """Set when the lock ends; None while no pull waits for that."""


class FreedNotices(Protocol):
    """How clients learn that they may try again: `RebalanceNotices`."""

    def queues_freed(self, group_name: str, client_ids: Collection[str]) -> None:
        """Queues whose locks these clients were refused are free now."""
        ...


class QueueLocks:
    """Locks by group and queue. A lock that is not renewed in time is free.

    Beyond `most`, nobody gets a queue that was not locked before.
    """

    def __init__(
        self, notices: FreedNotices, *, clock: Clock, timeout_s: float, most: int = _MOST_LOCKS
    ) -> None:
        self._notices = notices
        self._clock = clock
        self._timeout_ms = int(timeout_s * 1000)
        self._most = most
        self._count = 0
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def __len__(self) -> int:
        return self._count

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        notify_when_freed: bool = False,
    ) -> list[MessageQueue]:
        """Take or renew locks; returns the queues that this client holds afterwards.

        With `notify_when_freed` the client is notified once when one of the others becomes free.
        """
        now = self._clock()
        held = self._locks.get(group, {})
        got = []
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                lock.renewed_ms = now
            elif lock is not None and not self._is_free(lock, now):
                if notify_when_freed:
                    lock.refused[client_id] = None
                continue
            elif lock is None and self._count >= self._most:
                continue
            else:
                held[queue] = _Lock(client_id, now)
                self._count += lock is None
                if lock is not None:
                    # Other clients that were refused now wait for the new owner.
                    lock.refused.pop(client_id, None)
                    held[queue].refused = lock.refused
                    if lock.ended is not None:
                        lock.ended.set()
            got.append(queue)
        if held:
            self._locks[group] = held
        return got

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free what this client holds; locks of other clients stay."""
        held = self._locks.get(group, {})
        refused: dict[str, None] = {}
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self._count -= 1
                refused |= lock.refused
                if lock.ended is not None:
                    lock.ended.set()
        if not held:
            self._locks.pop(group, None)
        if refused:
            self._notices.queues_freed(group, refused)

    def unlock_all(self, group: str, client_id: str) -> None:
        """A client is gone: free its queues without waiting for their time to run out."""
        held = self._locks.get(group, {})
        self.unlock(
            group, client_id, [q for q, lock in held.items() if lock.client_id == client_id]
        )

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client that currently holds a queue."""
        lock = self._locks.get(group, {}).get(queue)
        return None if lock is None or self._is_free(lock, self._clock()) else lock.client_id

    def ended_event(self, group: str, queue: MessageQueue) -> asyncio.Event:
        """An event set when the owner of a queue, which must have one, no longer holds it."""
        lock = self._locks[group][queue]
        if lock.ended is None:
            lock.ended = asyncio.Event()
        return lock.ended

    def release_waiters(self) -> None:
        """End all waits for the end of a lock, because the broker is stopping."""
        for held in self._locks.values():
            for lock in held.values():
                if lock.ended is not None:
                    lock.ended.set()

    def clear(self) -> None:
        """Forget all locks: another broker has been granting them since."""
        self.release_waiters()
        self._locks.clear()
        self._count = 0

    def forgetting_free(self) -> Generator[None, None, None]:
        """Remove locks that were not renewed in time and that no member waits for, with a step
        wherever the loop may run."""
        for group in tuple(self._locks):
            held = self._locks.get(group, {})
            for queue in tuple(held):
                lock = held.get(queue)
                if lock is not None and self._is_forgotten(lock):
                    del held[queue]
                    self._count -= 1
                yield
            if not held and self._locks.get(group) is held:
                del self._locks[group]

    def _is_forgotten(self, lock: _Lock) -> bool:
        return not lock.refused and lock.ended is None and self._is_free(lock, self._clock())

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """Queue id to the client that currently holds it, for one topic."""
        now = self._clock()
        return {
            queue.queue_id: lock.client_id
            for queue, lock in self._locks.get(group, {}).items()
            if queue.topic == topic and not self._is_free(lock, now)
        }

    def _is_free(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._timeout_ms
