"""Messages between the pulls of a lite pull consumer and the application that polls.

pulled ▶ ready ▶ outstanding (returned by the last poll) ▶ acknowledged (by the next poll or commit)
"""

import asyncio
from collections import deque

from sparrowmq.client.held_queue import HeldQueue
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt


class Harvest:
    """A queue whose messages are outstanding counts as worked on: a hand-over waits for it."""

    def __init__(self) -> None:
        self.paused: set[MessageQueue] = set()
        self.arrival = asyncio.Event()
        self._ready: deque[tuple[HeldQueue, int, list[MessageExt]]] = deque()
        self._epochs: dict[HeldQueue, int] = {}
        self._outstanding: tuple[HeldQueue, int, list[MessageExt]] | None = None

    def put(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """Messages were pulled."""
        if messages:
            held.process_queue.put(messages)
            self._ready.append((held, self._epochs.get(held, 0), messages))
            self.arrival.set()

    def next_batch(self) -> list[MessageExt]:
        """What the application gets now; it stays in work until it is acknowledged."""
        for _ in range(len(self._ready)):
            held, epoch, messages = self._ready.popleft()
            if not held.may_begin or epoch != self._epochs.get(held, 0):
                continue  # given up, or sought elsewhere since
            if held.queue in self.paused:
                self._ready.append((held, epoch, messages))
                continue
            held.work_begins()
            self._outstanding = (held, epoch, messages)
            return messages
        return []

    def acknowledge(self) -> HeldQueue | None:
        """What was returned last is consumed; the queue whose progress moved."""
        if self._outstanding is None:
            return None
        (held, epoch, messages), self._outstanding = self._outstanding, None
        if epoch == self._epochs.get(held, 0):
            held.process_queue.remove(messages)
        held.work_ends(asyncio.get_running_loop().time())
        return None if held.is_dropped else held

    def move(self, held: HeldQueue, offset: int) -> None:
        """Go on elsewhere; what was pulled, also what is outstanding, has no say any more."""
        held.process_queue.clear()
        held.next_offset = offset
        self._epochs[held] = self._epochs.get(held, 0) + 1

    def forget(self, held: HeldQueue) -> None:
        """The queue is given up."""
        self._epochs.pop(held, None)
