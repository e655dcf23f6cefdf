"""A queue this consumer holds: what was pulled, where the next pull goes, why it may wait.

held ── leave ──▶ leaving ── drop ──▶ dropped
          │                     └ late results no longer count
          └ pulls end, workers begin nothing new, running handlers may finish
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.group.process_queue import ProcessQueue
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.route import MASTER_ID


class HeldQueue:
    """State of one assigned queue; dropped when the queue is given up."""

    __slots__ = (
        "began_s",
        "broker_id",
        "consume_lock",
        "epoch",
        "idle",
        "last_consume_s",
        "last_pull_s",
        "leaving_s",
        "locked_s",
        "next_offset",
        "process_queue",
        "queue",
        "running",
        "session",
        "task",
        "waits_for",
        "when_done",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, now_s: float, epoch: int | None = None
    ) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.epoch = epoch
        """The epoch of the broker's log when the next offset was learned; None if it has none."""
        self.process_queue = ProcessQueue()
        self.broker_id = MASTER_ID
        """Id of the broker for the next pull, as the last answer suggested."""
        self.last_pull_s = now_s
        self.last_consume_s = now_s
        self.began_s: float | None = None
        """When the last call of an ordered handler began; concurrent ones note it per message."""
        self.locked_s = now_s
        """When we asked for the lock that the broker last confirmed."""
        self.session = ""
        """Our session at the broker at that time; empty if it has none."""
        self.waits_for = ""
        """Why the queue is not being pulled now; empty while it is."""
        self.task: asyncio.Task[None] | None = None
        self.leaving_s: float | None = None
        self.running = 0
        """How many handler calls are working on it."""
        self.idle = asyncio.Event()
        self.idle.set()
        self.when_done: Callable[[], None] | None = None
        """Called once when its handlers are done, if a rebalance round found them running."""
        self.consume_lock = asyncio.Lock()
        """Held around the handler of an ordered queue; a release waits for it."""

    @property
    def is_dropped(self) -> bool:
        """Whether it was given up or lost: late results no longer count."""
        return self.process_queue.is_dropped

    @property
    def progress(self) -> int:
        """The smallest offset not yet consumed."""
        waiting = self.process_queue
        return waiting.progress if len(waiting) else self.next_offset

    @property
    def position(self) -> Position:
        """The same with the epoch in which it was learned."""
        return Position(self.progress, self.epoch)

    @property
    def may_begin(self) -> bool:
        """Whether workers may begin something new on it."""
        return self.leaving_s is None and not self.process_queue.is_dropped

    def work_begins(self) -> None:
        """A handler is called."""
        self.running += 1
        self.idle.clear()

    def work_ends(self, now_s: float) -> None:
        """A handler has returned and its result is settled."""
        self.running -= 1
        self.last_consume_s = now_s
        if not self.running:
            self.idle.set()
            self.handlers_done()

    @property
    def is_running(self) -> bool:
        """Whether a handler is working on it. Ordered queues hold a lock around their handler,
        concurrent ones count its calls."""
        return self.consume_lock.locked() or not self.idle.is_set()

    async def handlers_end(self, within_s: float) -> None:
        """Return when no handler is working on it, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                async with self.consume_lock:
                    pass  # the next worker sees that the queue is being given up
                await self.idle.wait()

    def handlers_done(self) -> None:
        """No handler is working on it now."""
        when_done, self.when_done = self.when_done, None
        if when_done is not None:
            when_done()

    def leave(self, now_s: float) -> None:
        """Stop pulling and starting handlers; running ones may finish."""
        if self.leaving_s is None:
            self.leaving_s = now_s
            self._stop_pulling()

    def drop(self) -> None:
        """Take no more messages from it, and end its pull loop."""
        self.process_queue.is_dropped = True
        self._stop_pulling()

    def _stop_pulling(self) -> None:
        if self.task is not None:
            self.task.cancel()


def pauses(held: Iterable[HeldQueue]) -> dict[MessageQueue, str]:
    """Those of the queues that are not being pulled now, each with the reason."""
    return {one.queue: one.waits_for for one in held if one.waits_for}
