"""Concurrent consumption: a pool of workers, and what happens to messages that fail.

pulled ▶ work items ▶ handler ─┬ done ───────────────────────▶ progress
                               ├ failed ▶ given back ────────▶ progress; it is delivered again
                               └ not given back ▶ stays in work, handed out again after 5 s

Progress is the smallest offset in work, so it passes a message only when the message is done or the
broker has taken it back. A crash in between delivers the message twice, but never loses it.
"""

import asyncio
import logging
from collections.abc import Sequence

from sparrowmq.client.consuming.handler_calls import THREADS_CLOSED, HandlerCalls
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rate_limit import RateLimit
from sparrowmq.net.workers import WorkersClosed
from sparrowmq.protocol.message_ext import MessageExt, failed_again

HAND_AGAIN_S = 5.0
"""A message that could not be sent back is handed to the handler again after this long."""
EXPIRED_LEVEL = 3
DOUBT_S = 0.5
"""How long the work of a queue waits if another member may own the queue by now."""
CHECK_S = 60.0
"""The longest interval between checks for handlers that take too long."""


class ConcurrentConsumption:
    """Hands messages to concurrent workers. Progress passes a message only when it is done or sent
    back."""

    def __init__(
        self,
        handling: HandlerCalls,
        giving_back: GivingBack | None,
        ownership: QueueOwnership,
        rate_limit: RateLimit,
        *,
        batch: int,
        timeout_s: float,
        log: logging.Logger,
    ) -> None:
        """Without `giving_back` (broadcasting) failed messages are logged and dropped."""
        self._handling = handling
        self._giving_back = giving_back
        self._batch = batch
        self._timeout_s = timeout_s
        self._ownership = ownership
        self._rate_limit = rate_limit
        self._log = log
        self._work: asyncio.Queue[tuple[HeldQueue, list[MessageExt]]] = asyncio.Queue()
        self._going_back: set[tuple[HeldQueue, int]] = set()
        """Queue and offset of messages being sent back, so that each is sent back once."""

    def submit(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """Cut messages into work items and queue them for the workers."""
        for item in work_items(messages, self._batch):
            self._work.put_nowait((held, item))

    async def work(self) -> None:
        """Run one worker until the interpreter exits. What is left of a queue that is given up
        stays for its next owner."""
        loop = asyncio.get_running_loop()
        now_s = loop.time
        while True:
            held, messages = await self._work.get()
            if self._rate_limit.rate is not None and held.may_begin:
                await self._rate_limit.take(len(messages))
            if not held.may_begin:
                continue
            if not self._ownership.may_work(held):
                loop.call_later(DOUBT_S, self._work.put_nowait, (held, messages))
                continue
            held.work_begins()
            held.process_queue.started(messages, now_s())
            try:
                await self._consume(held, messages)
            except WorkersClosed as error:
                self._log.warning(THREADS_CLOSED, held.queue, error)
                return
            except (Exception, asyncio.CancelledError):
                self._hand_unsettled(held, messages)
                raise
            finally:
                held.work_ends(now_s())

    async def _consume(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        result = await self._handling.handle(messages)
        queue = held.process_queue
        if not result.failed:
            if not queue.is_dropped:
                queue.remove(messages)
                self._ownership.note_progress(held)
            return
        bad = {message.queue_offset for message in result.failed}
        queue_done = [message for message in messages if message.queue_offset not in bad]
        if queue.is_dropped:
            return  # another member has the queue: a late result does not move progress
        queue.remove(queue_done)
        # What expired meanwhile was already sent back: its late result is ignored.
        failed = [message for message in result.failed if self._is_ours(held, message)]
        again = failed
        if self._ownership.may_work(held):  # else its next owner gets them, and decides
            again = await self._give_back(held, failed, result.delay_level, result.reason)
        queue.remove(message for message in failed if message not in again)
        self._ownership.note_progress(held)
        if again:
            self._hand_later(held, again)

    def _is_ours(self, held: HeldQueue, message: MessageExt) -> bool:
        is_leaving = (held, message.queue_offset) in self._going_back
        return held.process_queue.contains(message) and not is_leaving

    async def _give_back(
        self, held: HeldQueue, messages: list[MessageExt], level: int, reason: str
    ) -> list[MessageExt]:
        """Send messages back to the broker. Returns those for which that failed."""
        if self._giving_back is None:
            self._log.warning("%d messages failed and are dropped: broadcasting", len(messages))
            return []
        places = {(held, message.queue_offset) for message in messages}
        self._going_back.update(places)
        give_back = self._giving_back.give_back
        try:
            return [each for each in messages if not await give_back(each, level, reason)]
        finally:
            self._going_back.difference_update(places)

    def _hand_unsettled(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """Queue messages again whose worker ends: else they would wait for the consume timeout."""
        left = [message for message in messages if self._is_ours(held, message)]
        if left and held.may_begin:
            self._hand_later(held, left)

    def _hand_later(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """Keep messages in work with one more failure counted, so that progress does not pass
        them."""
        repeat = [failed_again(message) for message in messages]
        for message in repeat:
            held.process_queue.replace(message)
        loop = asyncio.get_running_loop()
        loop.call_later(HAND_AGAIN_S, self._hand_again, held, repeat)

    def _hand_again(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        if held.may_begin:
            self.submit(held, [m for m in messages if held.process_queue.contains(m)])

    async def watch(self) -> None:
        """Forever send back messages that handlers hold for too long, so that progress moves."""
        while True:
            await asyncio.sleep(min(CHECK_S, self._timeout_s))
            for held in list(self._ownership.held.values()):
                await self._expire(held)

    async def _expire(self, held: HeldQueue) -> None:
        before_s = asyncio.get_running_loop().time() - self._timeout_s
        while not held.is_dropped:
            message = held.process_queue.expired(before_s)
            if message is None or not self._is_ours(held, message):
                return
            if self._giving_back is not None:
                reason = f"its handler takes longer than {self._timeout_s:g} s"
                if await self._give_back(held, [message], EXPIRED_LEVEL, reason):
                    return
                if not _is_in_work(held, message):
                    return
            text = "the handler has had message %s for more than %g s: it is delivered again later"
            self._log.warning(text, message.msg_id, self._timeout_s)
            held.process_queue.remove([message])
            self._ownership.note_progress(held)


def _is_in_work(held: HeldQueue, message: MessageExt) -> bool:
    return not held.is_dropped and held.process_queue.contains(message)


def work_items(messages: Sequence[MessageExt], batch: int) -> list[list[MessageExt]]:
    """Ten pulled messages with batch size 4 are three work items: 4, 4 and 2."""
    return [list(messages[at : at + batch]) for at in range(0, len(messages), batch)]
