"""Orderly consumption: one message after another in each queue, guarded three times.

1 the broker's lock: one member of the group per queue; not renewed for 30 s → no further batch
2 one worker per queue inside the process
3 a consume lock around the handler and its result: a release of the queue waits for it
"""

import asyncio
import logging
from collections.abc import Sequence

from sparrowmq.client.consuming.handler_calls import (
    DEAD_LETTER,
    THREADS_CLOSED,
    HandlerCalls,
    Result,
)
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rate_limit import RateLimit
from sparrowmq.net.workers import WorkersClosed
from sparrowmq.protocol.message_ext import MessageExt, failed_again

UNLOCKED_S = 1.0
"""How long a queue with a doubtful lock waits."""
SUSPEND_S = 1.0
SHORTEST_S = 0.01
LONGEST_S = 30.0
UNLIMITED = -1


class OrderlyConsumption:
    """Hands out one batch of a queue at a time. A batch that fails is retried in its place; the
    queue waits for it."""

    def __init__(
        self,
        handling: HandlerCalls,
        giving_back: GivingBack,
        ownership: QueueOwnership,
        rate_limit: RateLimit,
        *,
        batch: int,
        max_reconsume_times: int,
        suspend_s: float,
        log: logging.Logger,
    ) -> None:
        self._handling = handling
        self._giving_back = giving_back
        self._batch = batch
        self._max_reconsume_times = max_reconsume_times
        self._suspend_s = suspend_s
        self._ownership = ownership
        self._rate_limit = rate_limit
        self._log = log
        self._ready: asyncio.Queue[HeldQueue] = asyncio.Queue()
        self._busy: set[HeldQueue] = set()

    def submit(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """Give the queue to a worker, unless one already has it."""
        if messages and self.claim(held):
            self._ready.put_nowait(held)

    def claim(self, held: HeldQueue) -> bool:
        """Mark a queue as being worked on. Returns whether no worker had it before."""
        if held in self._busy:
            return False
        self._busy.add(held)
        return True

    async def work(self) -> None:
        """Run one worker until the interpreter exits: a batch of a queue, then the next queue."""
        while True:
            held = await self._ready.get()
            try:
                pause_s = await self._turn(held)
            except WorkersClosed as error:
                self._log.warning(THREADS_CLOSED, held.queue, error)
                return
            except (Exception, asyncio.CancelledError):
                self._go_on(held, SUSPEND_S)  # or the queue would wait for this worker forever
                raise
            self._go_on(held, pause_s)

    def _go_on(self, held: HeldQueue, pause_s: float) -> None:
        """End a queue's turn. If it has messages, its next turn comes after a pause."""
        held.handlers_done()
        if not held.may_begin or not len(held.process_queue):
            self._busy.discard(held)
        elif pause_s:
            asyncio.get_running_loop().call_later(pause_s, self._ready.put_nowait, held)
        else:
            self._ready.put_nowait(held)

    async def _turn(self, held: HeldQueue) -> float:
        """Handle one batch. Returns how long the queue has to wait afterwards."""
        if self._rate_limit.rate is not None:  # first: the lock may be lost meanwhile
            await self._rate_limit.take(len(held.process_queue.first(self._batch)))
        if not await self._ownership.has_lock(held):
            return UNLOCKED_S
        messages = held.process_queue.first(self._batch)
        if not messages:
            return 0.0
        async with held.consume_lock:
            if not held.may_begin:
                return 0.0
            held.began_s = asyncio.get_running_loop().time()
            result = await self._handle(held, messages)
            held.last_consume_s = asyncio.get_running_loop().time()
            if held.is_dropped:
                return 0.0  # lost meanwhile: the result no longer counts
            # Before the queue is released: its next owner would start with what is being settled.
            return await self._settle(held, messages, result)

    async def _handle(self, held: HeldQueue, messages: list[MessageExt]) -> Result:
        try:
            return await self._handling.handle(messages)
        except asyncio.CancelledError:
            # Counted, in case the handler itself has cancelled this worker
            for message in messages:
                held.process_queue.replace(failed_again(message))
            raise

    async def _settle(self, held: HeldQueue, messages: list[MessageExt], result: Result) -> float:
        bad = {message.queue_offset for message in result.failed}
        queue = held.process_queue
        queue.remove(message for message in messages if message.queue_offset not in bad)
        is_stuck = False
        give_back = self._giving_back.give_back
        for message in result.failed:
            is_over = self._has_had_enough(message) or result.delay_level == DEAD_LETTER
            if is_over and await give_back(message, DEAD_LETTER, result.reason):
                queue.remove([message])
            else:
                queue.replace(failed_again(message))
                is_stuck = True
        self._ownership.note_progress(held)
        if not is_stuck:
            return 0.0
        wanted_s = self._suspend_s if result.suspend_s is None else result.suspend_s
        return min(max(wanted_s, SHORTEST_S), LONGEST_S)

    def _has_had_enough(self, message: MessageExt) -> bool:
        most = self._max_reconsume_times
        return most != UNLIMITED and message.reconsume_times >= most
