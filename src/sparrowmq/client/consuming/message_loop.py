"""`async for message in consumer`: the body of a loop as the handler of a push consumer.

worker of the consumer                     task of the loop
handle(message) ── arrived ──────────────▶ __anext__ returns it
   │ waits                                 the body runs
   ◀──────── outcome ───────────────────── __anext__ again: done
                                           the block ends: done, failed, or not decided
Retries, hooks and progress are those of a handler. A loop cannot see how its body ended: asking for
the next message, and the end of the `async with` block, are all that it learns.
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
        """`start` begins to consume, with `handle` as the handler and `end` called at the end;
        `stopped` returns after a stop, and raises what ended the consumer otherwise; `abandon` ends
        the workers, and leaves what they have to the next owner."""
        self._start = start
        self._stopped = stopped
        self._abandon = abandon
        self._is_left = False
        self._is_started = False
        self._arrived: deque[tuple[MessageExt, asyncio.Future[None]]] = deque()
        self._is_over = False
        self._news = asyncio.Event()
        self._current: asyncio.Future[None] | None = None
        """What becomes of the message that the body has."""
        self._reader: asyncio.Task[object] | None = None

    # ---- the consumer's side

    async def handle(self, message: MessageExt) -> None:
        """The handler: returns or raises when the body is through with the message."""
        outcome = asyncio.get_running_loop().create_future()
        if self._is_left:  # its worker was quicker than the stop: no body will take the message
            self._abandon()
        self._arrived.append((message, outcome))
        self._news.set()
        await outcome

    def end(self) -> None:
        """Nothing comes any more: what waits for a message learns it."""
        self._is_over = True
        self._news.set()

    @property
    def is_in_body(self) -> bool:
        """Whether the caller is the body of the loop, for which a stop would have to wait."""
        is_busy = self._current is not None and not self._current.done()
        return is_busy and asyncio.current_task() is self._reader

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits that no body has begun with."""
        return self._current is None and any(not outcome.done() for _, outcome in self._arrived)

    # ---- the side of the loop

    def __aiter__(self) -> MessageLoop:
        """Another loop in the same block. `break` and an exception look the same from here, so that
        the message at which the last loop was left comes again: at least once."""
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
                if not outcome.done():  # else its worker was ended meanwhile
                    self._current = outcome
                    return message
            if self._is_over:
                await self._stopped()
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def left(self, error: BaseException | None) -> bool:
        """The block ends, with an exception or without: what the body has is done or failed.
        Whether that could be decided: a body that was cancelled has done neither."""
        self._is_left = True
        if error is not None and not isinstance(error, Exception):
            return self._current is None
        if isinstance(error, StopIteration):  # which no future takes
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
