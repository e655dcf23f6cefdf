"""Handing messages to the handler: a pool of workers, results, and what happens to failures."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from sparrowmq.client.broker_calls import address_of, call
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.held_queue import HeldQueue
from sparrowmq.client.process_queue import work_items
from sparrowmq.net.errors import NetError
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.headers.send_back import SendBack
from sparrowmq.protocol.message_ext import MessageExt

Handler = Callable[[Sequence[MessageExt]], Awaitable[None] | None]

HAND_AGAIN_S = 5.0
"""When a message could not be given back it is handed to the handler again after this long."""


class RetryLater(Exception):
    """Raised by a handler that chooses how: what is done, and when the rest comes again."""

    def __init__(self, reason: str = "", *, done: int = 0, delay_level: int = 0) -> None:
        """`done` messages from the front are consumed. `delay_level` 0 lets the broker decide by
        the number of attempts, -1 sends to the dead letters at once."""
        super().__init__(reason)
        self.done = done
        self.delay_level = delay_level


class Consuming:
    """Concurrent consumption. Progress passes a message only when it is done or given back."""

    def __init__(
        self,
        client: Client,
        group: str,
        handler: Handler,
        workers: Workers,
        *,
        batch: int,
        max_reconsume_times: int,
        progressed: Callable[[HeldQueue], None],
        gives_back: bool,
        log: logging.Logger,
    ) -> None:
        self._client = client
        self._group = group
        self._handler = handler
        self._workers = workers
        self._batch = batch
        self._max_reconsume_times = max_reconsume_times
        self._progressed = progressed
        self._gives_back = gives_back
        self._log = log
        self._work: asyncio.Queue[tuple[HeldQueue, list[MessageExt]]] = asyncio.Queue()
        self._in_work: Counter[HeldQueue] = Counter()
        self._finished = asyncio.Condition()

    def submit(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """Cut into work items and let the workers have them."""
        for item in work_items(messages, self._batch):
            self._in_work[held] += 1
            self._work.put_nowait((held, item))

    async def work(self) -> None:
        """One worker, for ever."""
        while True:
            held, messages = await self._work.get()
            try:
                if not held.process_queue.is_dropped:
                    await self._consume(held, messages)
            finally:
                await self._item_finished(held)

    async def _item_finished(self, held: HeldQueue) -> None:
        self._in_work[held] -= 1
        if not self._in_work[held]:
            del self._in_work[held]
            async with self._finished:
                self._finished.notify_all()

    async def idle(self, held: HeldQueue | None = None) -> None:
        """Return when nothing of this queue, or of any, is with a handler or waits for one."""
        async with self._finished:
            await self._finished.wait_for(
                lambda: not self._in_work if held is None else held not in self._in_work
            )

    async def _consume(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        failed, level = await self._handle(messages)
        queue = held.process_queue
        if queue.is_dropped:
            return  # somebody else has the queue: a late result does not move progress
        done = messages[: len(messages) - len(failed)]
        again = await self._give_back(failed, level) if failed else []
        queue.remove([*done, *(message for message in failed if message not in again)])
        self._progressed(held)
        if again:
            loop = asyncio.get_running_loop()
            for message in again:
                queue.replace(message.failed_again())
            repeat = [message.failed_again() for message in again]
            loop.call_later(HAND_AGAIN_S, self._hand_again, held, repeat)

    def _hand_again(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        if not held.process_queue.is_dropped:
            self.submit(held, messages)

    async def _handle(self, messages: list[MessageExt]) -> tuple[list[MessageExt], int]:
        """What the handler did not consume, and the delay level it chose."""
        try:
            if inspect.iscoroutinefunction(self._handler):
                await self._handler(messages)
            else:
                result = await self._workers.run(self._handler, messages)
                if inspect.isawaitable(result):
                    await result
        except RetryLater as later:
            return messages[later.done :], later.delay_level
        except Exception as error:
            first = messages[0]
            self._log.warning(
                "handler failed for %d messages of %s from offset %d: %s",
                len(messages),
                first.queue,
                first.queue_offset,
                error,
                exc_info=error,
            )
            return messages, 0
        return [], 0

    async def _give_back(self, messages: list[MessageExt], level: int) -> list[MessageExt]:
        """Send messages back to the broker; those that could not be are returned."""
        if not self._gives_back:
            self._log.warning("%d messages failed and are dropped: broadcasting", len(messages))
            return []
        stay = []
        for message in messages:
            header = SendBack(
                offset=message.log_offset,
                group=self._group,
                delay_level=level,
                origin_msg_id=message.msg_id,
                origin_topic=message.original_topic,
                unit_mode=False,
                max_reconsume_times=self._max_reconsume_times,
            )
            try:
                address = await address_of(self._client, message.topic, message.broker_name)
                await call(self._client, address, header)
            except (ClientError, NetError) as error:
                self._log.warning("message %s not given back: %s", message.msg_id, error)
                stay.append(message)
        return stay
