"""Locks of ordered queues: one client of a group at a time, for as long as it renews."""

from collections.abc import Iterable
from dataclasses import dataclass

from sparrowmq.clock import Clock
from sparrowmq.protocol.message import MessageQueue


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Who may consume which queue in order. A lock that is not renewed in time is free."""

    def __init__(self, *, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or renew; the queues that this client holds afterwards."""
        now = self._clock()
        held = self._locks.setdefault(group, {})
        got = []
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id != client_id and not self._is_free(lock, now):
                continue
            held[queue] = _Lock(client_id, now)
            got.append(queue)
        return got

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what this client holds; others' locks stay."""
        held = self._locks.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
        if not held:
            self._locks.pop(group, None)

    def free_client(self, group: str, client_id: str) -> None:
        """A client is gone: its queues need not wait for the time to run out."""
        held = self._locks.get(group, {})
        self.unlock(
            group, client_id, [q for q, lock in held.items() if lock.client_id == client_id]
        )

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds a queue now."""
        lock = self._locks.get(group, {}).get(queue)
        return None if lock is None or self._is_free(lock, self._clock()) else lock.client_id

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
