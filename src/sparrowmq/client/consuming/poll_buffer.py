"""Messages between the pulls of a lite pull consumer and the application that polls.

pulled ▶ ready ▶ outstanding (returned by the last poll) ▶ acknowledged (by the next poll or commit)
"""

import asyncio
from collections import deque
from contextlib import suppress

from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

AGAIN_S = 0.5


class PollBuffer:
    """Pulled messages of all queues, in the order in which they arrived.

    A queue whose messages are outstanding counts as in work: a hand-over waits for the poll that
    acknowledges them, as it waits for a handler.
    """

    def __init__(self) -> None:
        self.paused: set[MessageQueue] = set()
        self.arrival = asyncio.Event()
        self._ready: deque[tuple[HeldQueue, int, list[MessageExt]]] = deque()
        self._seeks: dict[HeldQueue, int] = {}
        """How often the application moved in a queue: what was pulled before the move is void."""
        self._outstanding: tuple[HeldQueue, int, list[MessageExt]] | None = None

    def put(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """Add pulled messages."""
        if messages:
            held.process_queue.put(messages)
            self._ready.append((held, self._seeks.get(held, 0), messages))
            self.arrival.set()

    async def more(self) -> None:
        """Wait until `next_batch` may return something; retries soon what it kept back."""
        self.arrival.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S if self._ready else None):
                await self.arrival.wait()

    @property
    def has_ready(self) -> bool:
        """Whether anything waits to be polled."""
        return bool(self._ready)

    def next_batch(self, ownership: QueueOwnership, most: int | None = None) -> list[MessageExt]:
        """The messages the application gets now, at most `most` if given; they stay in work until
        acknowledged. Keeps back queues that are paused or may belong to another member by now."""
        for _ in range(len(self._ready)):
            held, seeks, messages = self._ready.popleft()
            if not held.may_begin or seeks != self._seeks.get(held, 0):
                continue  # the queue was given up, or moved since
            if held.queue in self.paused or not ownership.may_work(held):
                self._ready.append((held, seeks, messages))
                continue
            if most is not None and len(messages) > most:
                self._ready.appendleft((held, seeks, messages[most:]))
                messages = messages[:most]
            held.work_begins()
            self._outstanding = (held, seeks, messages)
            return messages
        return []

    def acknowledge(self) -> HeldQueue | None:
        """Count what was returned last as consumed. Returns the queue whose progress moved."""
        if self._outstanding is None:
            return None
        (held, seeks, messages), self._outstanding = self._outstanding, None
        if seeks == self._seeks.get(held, 0):
            held.process_queue.remove(messages)
        held.work_ends(asyncio.get_running_loop().time())
        return None if held.is_dropped else held

    def move(self, held: HeldQueue, offset: int) -> None:
        """Continue at another offset; what was pulled, even if outstanding, no longer counts."""
        held.process_queue.clear()
        held.next_offset = offset
        self._seeks[held] = self._seeks.get(held, 0) + 1

    def forget(self, held: HeldQueue) -> None:
        """The queue is given up."""
        self._seeks.pop(held, None)
