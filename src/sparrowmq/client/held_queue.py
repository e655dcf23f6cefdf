"""A queue this consumer holds: what was pulled, where the next pull goes, why it may wait."""

import asyncio

from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.protocol.message import MessageQueue


class HeldQueue:
    """State of one assigned queue; dropped when the queue is given up."""

    __slots__ = ("last_pull_s", "next_offset", "process_queue", "queue", "task", "waits_for")

    def __init__(self, queue: MessageQueue, next_offset: int, now_s: float) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.process_queue = ProcessQueue()
        self.last_pull_s = now_s
        self.waits_for = ""
        """Why it is not pulled now; empty while it is."""
        self.task: asyncio.Task[None] | None = None

    def stop_pulling(self) -> None:
        """End its pull loop; what was pulled goes on."""
        if self.task is not None:
            self.task.cancel()

    def drop(self) -> None:
        """Take nothing more from it, and end its pull loop."""
        self.process_queue.is_dropped = True
        self.stop_pulling()
