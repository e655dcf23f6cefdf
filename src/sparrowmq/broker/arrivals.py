"""Parked pulls: they found nothing and wait for their queue to grow.

A parked pull is a small record, not a coroutine: a consumer that keeps up parks on nearly every
pull, and 100,000 of them may wait. Waking them is bounded in two ways. A queue that grew many times
in one turn of the loop is checked once, after the sends of that turn; and of a crowd that waits on
one queue only some are retried in each turn, so that other connections get their turn. So are
crowds answered whose time is up.

    park ──── announce (the queue grew) ── retry once per touched queue and loop turn; of a crowd
         │                                 some in each turn
         ├─── its deadline passed ──────┐
         ├─── its topic was deleted ────┴─ give up: answer as for an empty pull, some in each turn
         ├─── its connection ended ─────── forgotten
         ├─── its group was reset ──────── taken: answered with the new offset
         ├─── the broker is draining ───── taken: rejected
         └─── every 5 s ────────────────── the safety net: look at the queue again
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Protocol

from sparrowmq.net.connection import Connection
from sparrowmq.net.routes import Request
from sparrowmq.store.store import Store

QueueKey = tuple[str, int]

_CHECK_S = 5.0
_RETRIES_PER_TURN = 16
"""A message may wake 100,000 pulls, and each reply may be 4 MiB: others get a turn in between."""
_ENDED_PER_TURN = 256
"""Pulls given up in each turn: 100,000 answers without messages take more than half a second."""
_EXPIRY_S = 0.1
"""The shortest interval between checks of deadlines: pulls may wait longer by this much.

A check goes through all parked pulls. That costs less than a heap of deadlines: nearly every pull
is answered long before its deadline, and would have to be removed from the heap again.
"""


class WaitingPull(Protocol):
    """A pull that waits. `handlers/pull.py` has the only real one."""

    deadline_s: float
    """When it gives up, by the loop's clock; set when it is parked."""

    @property
    def request(self) -> Request[Any]: ...

    @property
    def key(self) -> QueueKey:
        """The queue it waits for."""
        ...

    @property
    def offset(self) -> int:
        """The offset it waits for; advances when its filter rejects new messages."""
        ...

    def retry(self) -> bool:
        """Read the queue again; returns whether the request was answered."""
        ...

    def give_up(self) -> None:
        """Answer that no message came."""
        ...


class Arrivals:
    """The parked pulls, by queue and by connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, *, max_waiting: int) -> None:
        self._loop = loop
        self._store = store
        self._max_waiting = max_waiting
        # dicts serve as ordered sets: the pull that waits longest is answered first
        self._by_queue: dict[QueueKey, dict[WaitingPull, None]] = {}
        self._by_connection: dict[Connection, dict[WaitingPull, None]] = {}
        self._touched: dict[QueueKey, None] = {}
        self._crowds: dict[QueueKey, bool] = {}
        """Queues whose pulls are retried over several turns, and whether they grew meanwhile."""
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_s = inf
        """When deadlines will be checked next."""
        self._check: asyncio.TimerHandle | None = None
        self.waiting = 0

    @property
    def is_full(self) -> bool:
        """Whether no more pulls may be parked."""
        return self.waiting >= self._max_waiting

    def park(self, pull: WaitingPull, wait_s: float) -> None:
        """Let a pull wait for `wait_s` at most."""
        pull.deadline_s = deadline_s = self._loop.time() + wait_s
        self._by_queue.setdefault(pull.key, {})[pull] = None
        self._by_connection.setdefault(pull.request.connection, {})[pull] = None
        self.waiting += 1
        if deadline_s < self._expiry_s:
            self._schedule_expiry(deadline_s)
        if self._check is None:
            self._check = self._loop.call_later(_CHECK_S, self._look_again)

    def announce(self, topic: str, queue_id: int) -> None:
        """A queue grew. The pulls that wait on it are retried once, later in this loop turn,
        however many messages came."""
        key = (topic, queue_id)
        if key in self._by_queue:
            if not self._touched:
                self._loop.call_soon(self.wake_touched)
            self._touched[key] = None

    def has_pulls_of(self, connection: Connection) -> bool:
        """Whether a pull of this connection is parked."""
        return connection in self._by_connection

    def forget(self, connection: Connection) -> None:
        """A connection ended: drop its parked pulls."""
        for pull in tuple(self._by_connection.get(connection, ())):
            self._drop(pull)

    def end_topic(self, topic: str) -> None:
        """A topic was deleted: answer its pulls, as nothing will arrive any more.

        They are out of the queue at once: one may be created under that name before all of them
        have their answer.
        """
        ended: deque[WaitingPull] = deque()
        for key in tuple(self._by_queue):
            if key[0] == topic:
                ended.extend(self._by_queue.pop(key))
        self._give_up(ended)

    def take(self, key: QueueKey, wanted: Callable[[WaitingPull], bool]) -> list[WaitingPull]:
        """Remove and return the wanted pulls of a queue; the caller answers them."""
        taken = [pull for pull in self._by_queue.get(key, ()) if wanted(pull)]
        for pull in taken:
            self._remove(pull)
        return taken

    def take_all(self) -> list[WaitingPull]:
        """Remove and return all parked pulls, because the broker stops; the caller answers them."""
        taken = list(self._pulls())
        for pull in taken:
            self._remove(pull)
        for timer in (self._expiry, self._check):
            if timer is not None:
                timer.cancel()
        self._expiry = self._check = None
        self._expiry_s = inf
        return taken

    def _pulls(self) -> Iterator[WaitingPull]:
        for pulls in self._by_queue.values():
            yield from pulls

    def wake_touched(self) -> None:
        """Retry the pulls of the queues that grew in this loop turn; the loop calls this."""
        touched, self._touched = self._touched, {}
        for key in touched:
            pulls = tuple(self._by_queue.get(key, ()))
            if pulls[_RETRIES_PER_TURN:]:
                self._begin_crowd(key, pulls)
                continue
            for pull in pulls:
                if pull.retry():
                    self._remove(pull)

    def _begin_crowd(self, key: QueueKey, pulls: tuple[WaitingPull, ...]) -> None:
        if key in self._crowds:
            self._crowds[key] = True
        else:
            self._crowds[key] = False
            self._wake_crowd(key, deque(pulls))

    def _wake_crowd(self, key: QueueKey, pulls: deque[WaitingPull]) -> None:
        try:
            for _ in range(min(len(pulls), _RETRIES_PER_TURN)):
                pull = pulls.popleft()
                is_waiting = pull in self._by_queue.get(key, ())
                if is_waiting and pull.retry():
                    self._remove(pull)
        finally:
            if pulls:
                self._loop.call_soon(self._wake_crowd, key, pulls)
            elif self._crowds.pop(key):
                self.announce(*key)

    def _look_again(self) -> None:
        self._check = self._loop.call_later(_CHECK_S, self._look_again) if self.waiting else None
        for key, pulls in tuple(self._by_queue.items()):
            _, end = self._store.visible_range(*key)
            if any(pull.offset < end for pull in pulls):
                self.announce(*key)

    def _schedule_expiry(self, deadline_s: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_s = max(deadline_s, self._loop.time() + _EXPIRY_S)
        self._expiry = self._loop.call_at(self._expiry_s, self._expire)

    def _expire(self) -> None:
        self._expiry, self._expiry_s = None, inf
        now, first_s = self._loop.time(), inf
        due: deque[WaitingPull] = deque()
        for pull in self._pulls():
            if pull.deadline_s <= now:
                due.append(pull)
            elif pull.deadline_s < first_s:
                first_s = pull.deadline_s
        if first_s < inf:
            self._schedule_expiry(first_s)
        self._give_up(due)

    def _give_up(self, ended: deque[WaitingPull]) -> None:
        for _ in range(min(len(ended), _ENDED_PER_TURN)):
            pull = ended.popleft()
            # Others were answered meanwhile, or their connection has ended
            if pull in self._by_connection.get(pull.request.connection, ()):
                self._drop(pull)
                pull.give_up()
        if ended:
            self._loop.call_soon(self._give_up, ended)

    def _drop(self, pull: WaitingPull) -> None:
        """Remove a pull that may have left its queue, because its topic was deleted."""
        self._by_queue.setdefault(pull.key, {})[pull] = None
        self._remove(pull)

    def _remove(self, pull: WaitingPull) -> None:
        pulls = self._by_queue[pull.key]
        del pulls[pull]
        if not pulls:
            del self._by_queue[pull.key]
        connection = pull.request.connection
        pulls = self._by_connection[connection]
        del pulls[pull]
        if not pulls:
            del self._by_connection[connection]
        self.waiting -= 1
