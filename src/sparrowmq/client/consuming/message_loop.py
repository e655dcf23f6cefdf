"""`async for message in consumer`: the body of a loop as the handler of a push consumer.

worker of the consumer                     task of the loop
handle(message) ── arrived ──────────────▶ __anext__ returns it
   │ waits                                 the body runs
   ◀──────── outcome ───────────────────── __anext__ again: done
                                           the block ends: done, failed, or not decided
Retries, hooks and progress work as for a handler. A loop cannot see how its body ended: all it sees
is the request for the next message, and the end of the `async with` block.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.protocol.message_ext import MessageExt

IN_THE_BODY = (
    "stop() inside of the loop's body would wait for the body itself: leave the loop with break,"
    " and the end of the block stops the consumer"
)


class MessageLoop:
    """Hands messages from a consumer's worker to one task that iterates."""

    def __init__(
        self,
        start: Callable[[MessageLoop], Awaitable[None]],
        stopped: Callable[[], Awaitable[None]],
        abandon: Callable[[], None],
    ) -> None:
        """`start` begins to consume, with `handle` as the handler, and calls `end` at the end;
        `stopped` returns after a stop, and raises whatever else ended the consumer; `abandon` ends
        the workers and leaves their messages to the next owner."""
        self._start = start
        self._stopped = stopped
        self._abandon = abandon
        self._is_left = False
        self._is_started = False
        self._arrived: deque[tuple[MessageExt, asyncio.Future[None]]] = deque()
        self._is_over = False
        self._news = asyncio.Event()
        self._current: asyncio.Future[None] | None = None
        """The outcome of the message that the body is working on."""
        self._reader: asyncio.Task[object] | None = None

    # ---- the consumer's side

    async def handle(self, message: MessageExt) -> None:
        """The handler: returns or raises when the body has finished the message."""
        outcome = asyncio.get_running_loop().create_future()
        if self._is_left:  # the worker was faster than the stop: no body will take the message
            self._abandon()
        self._arrived.append((message, outcome))
        self._news.set()
        await outcome

    def end(self) -> None:
        """No more messages will come: wake the loop that waits for one."""
        self._is_over = True
        self._news.set()

    @property
    def is_in_body(self) -> bool:
        """Whether the caller is the body of the loop, for which a stop would have to wait."""
        is_busy = self._current is not None and not self._current.done()
        return is_busy and asyncio.current_task() is self._reader

    @property
    def has_waiting(self) -> bool:
        """Whether a message is waiting that no body has started on."""
        return self._current is None and any(not outcome.done() for _, outcome in self._arrived)

    # ---- the side of the loop

    def __aiter__(self) -> MessageLoop:
        """Start another loop in the same block. `break` and an exception look the same from here,
        so the message at which the last loop was left is delivered again: at least once."""
        self._settle(RetryLater("the loop that had it was left before the end of its body"))
        return self

    async def __anext__(self) -> MessageExt:
        self._settle(None)
        self._reader = asyncio.current_task()
        if not self._is_started:
            self._is_started = True
            await self._start(self)
        while True:
            while self._arrived:
                message, outcome = self._arrived.popleft()
                if not outcome.done():  # else its worker has ended meanwhile
                    self._current = outcome
                    return message
            if self._is_over:
                await self._stopped()
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def left(self, error: BaseException | None) -> bool:
        """The block ended, with an exception or without: the body's message is done or failed.
        Returns whether that could be decided: it cannot if the body was cancelled."""
        self._is_left = True
        if error is not None and not isinstance(error, Exception):
            return self._current is None
        if isinstance(error, StopIteration):  # futures do not accept it
            error = RuntimeError(f"the body of the loop raised {error!r}")
        self._settle(error)
        return True

    def _settle(self, error: Exception | None) -> None:
        outcome, self._current = self._current, None
        if outcome is None or outcome.done():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)
