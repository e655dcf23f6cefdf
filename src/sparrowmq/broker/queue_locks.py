"""Locks of queues: one client of a group at a time, for as long as it renews.

Ordered consumers lock what they consume, and Python members whatever they hold. A lock ends when
its owner gives it back or is gone; those who were refused, or wait for the end, are told then:

    locked ─┬─ unlocked, owner gone, taken by another after its time ─▶ ended: waiters told
            └─ not renewed in time: free for whoever asks next
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sparrowmq.clock import Clock
from sparrowmq.protocol.message import MessageQueue


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int
    refused: dict[str, None] = field(default_factory=dict)
    """Clients that want to be told when it ends; a dict keeps their order."""
    ended: asyncio.Event | None = None
    """Set at its end, when somebody waits for that."""


class FreedNotices(Protocol):
    """How clients learn that they may try again: `RebalanceNotices`."""

    def queues_freed(self, group_name: str, client_ids: Collection[str]) -> None:
        """Queues are free now whose locks these clients were refused."""
        ...


class QueueLocks:
    """Who holds which queue. A lock that is not renewed in time is free."""

    def __init__(self, notices: FreedNotices, *, clock: Clock, timeout_s: float) -> None:
        self._notices = notices
        self._clock = clock
        self._timeout_ms = int(timeout_s * 1000)
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        notify_when_freed: bool = False,
    ) -> list[MessageQueue]:
        """Take or renew locks; returns the queues that this client holds afterwards.

        With `notify_when_freed` it is notified once when one of the others becomes free.
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
            else:
                held[queue] = _Lock(client_id, now)
                if lock is not None:
                    # Whoever else was refused waits for this owner now.
                    lock.refused.pop(client_id, None)
                    held[queue].refused = lock.refused
                    if lock.ended is not None:
                        lock.ended.set()
            got.append(queue)
        if held:
            self._locks[group] = held
        return got

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what this client holds; others' locks stay."""
        held = self._locks.get(group, {})
        refused: dict[str, None] = {}
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                refused |= lock.refused
                if lock.ended is not None:
                    lock.ended.set()
        if not held:
            self._locks.pop(group, None)
        if refused:
            self._notices.queues_freed(group, refused)

    def unlock_all(self, group: str, client_id: str) -> None:
        """A client is gone: its queues need not wait for the time to run out."""
        held = self._locks.get(group, {})
        self.unlock(
            group, client_id, [q for q, lock in held.items() if lock.client_id == client_id]
        )

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds a queue now."""
        lock = self._locks.get(group, {}).get(queue)
        return None if lock is None or self._is_free(lock, self._clock()) else lock.client_id

    def ended_event(self, group: str, queue: MessageQueue) -> asyncio.Event:
        """Set when the present owner of a queue does not hold it any more. It has to have one."""
        lock = self._locks[group][queue]
        if lock.ended is None:
            lock.ended = asyncio.Event()
        return lock.ended

    def release_waiters(self) -> None:
        """Let everybody go on who waits for the end of a lock: the broker stops."""
        for held in self._locks.values():
            for lock in held.values():
                if lock.ended is not None:
                    lock.ended.set()

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """Who holds which queues of a topic now."""
        now = self._clock()
        return {
            queue.queue_id: lock.client_id
            for queue, lock in self._locks.get(group, {}).items()
            if queue.topic == topic and not self._is_free(lock, now)
        }

    def _is_free(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._timeout_ms
