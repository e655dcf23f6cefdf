"""When a send may be acknowledged: at once, or when its bytes are safe.

ASYNC   reply at once; everything is synced every `flush_interval_s`
SYNC    group commit: whoever arrived while a sync ran shares the next one
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sparrowmq.broker.config import Flush
from sparrowmq.net.reply import Reply, Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.errors import StoreError
from sparrowmq.store.store import Store


class Waiter:
    """A send that is appended but not yet safe."""

    __slots__ = ("deadline_s", "end_offset", "reply", "request")

    def __init__(
        self, request: Request[Any], reply: Reply, end_offset: int, deadline_s: float
    ) -> None:
        self.request = request
        self.reply = reply
        self.end_offset = end_offset
        self.deadline_s = deadline_s


class Durability:
    """Decides when replies leave, and drives the store's flushes."""

    def __init__(
        self,
        store: Store,
        sync: Callable[[Any], Awaitable[None]],
        *,
        flush: Flush,
        flush_interval_s: float,
        flush_timeout_s: float,
        log: logging.Logger,
    ) -> None:
        self._store = store
        self._sync = sync
        self.is_sync = flush is Flush.SYNC
        """Whether replies may have to wait at all."""
        self._interval_s = flush_interval_s
        self._timeout_s = flush_timeout_s
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[Waiter] = deque()
        self._wanted = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def oldest_wait_s(self) -> float:
        """How long the first send in line has been waiting; 0 when nobody waits."""
        if not self._waiters:
            return 0.0
        return self._timeout_s - (self._waiters[0].deadline_s - self._loop.time())

    def reply_when_safe(
        self, request: Request[Any], reply: Reply, end_offset: int, *, must_wait: bool
    ) -> Reply | None:
        """The reply itself unless it has to wait; then None, and the request is answered later."""
        if not self.is_sync or not must_wait or request.is_oneway:
            return reply
        deadline_s = self._loop.time() + self._timeout_s
        self._waiters.append(Waiter(request, reply, end_offset, deadline_s))
        self._wanted.set()
        if self._expiry is None:
            self._expiry = self._loop.call_at(deadline_s, self._expire)
        return None

    async def run(self) -> None:
        """Flush for ever: when somebody waits, else by the interval. Ends with an error only."""
        while True:
            if not self.is_sync:
                await asyncio.sleep(self._interval_s)
            elif not self._waiters:
                self._wanted.clear()
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            await self.flush()

    async def flush(self) -> None:
        """Sync what is appended now and answer who waited for it.

        The first failed sync ends acknowledgements for good: nobody knows what is on the disk.
        """
        plan = self._store.begin_flush(urgent=bool(self._waiters))
        if plan is not None:
            try:
                await self._sync(plan)
                self._store.finish_flush(plan)
            except OSError as error:
                self._store.fail(f"fsync failed: {error}")
                self._refuse_all(str(error))
                raise StoreError(f"fsync failed, stopping: {error}") from error
        self._release()

    def _release(self) -> None:
        durable = self._store.durable_log_offset
        while self._waiters and self._waiters[0].end_offset <= durable:
            waiter = self._waiters.popleft()
            waiter.request.answer(waiter.reply)

    def _expire(self) -> None:
        """Sends that waited too long are told so; their messages stay."""
        self._expiry = None
        now = self._loop.time()
        while self._waiters and self._waiters[0].deadline_s <= now:
            waiter = self._waiters.popleft()
            waiter.reply.code = ResponseCode.FLUSH_DISK_TIMEOUT
            waiter.request.answer(waiter.reply)
        if self._waiters:
            self._expiry = self._loop.call_at(self._waiters[0].deadline_s, self._expire)

    def _refuse_all(self, reason: str) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            text = f"the broker's disk failed, whether the message is kept is unknown: {reason}"
            waiter.request.answer(Reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=text))
