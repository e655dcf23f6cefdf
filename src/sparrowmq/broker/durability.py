"""When a send may be acknowledged and when consumers may see it: at once, or when it is safe.

ASYNC   reply at once; everything is synced every `flush_interval_s`. Consumers see a message at
        once, unless `unsynced_window` others of its queue are not synced yet
SYNC    group commit: whoever arrived while a sync ran shares the next one. Consumers see a message
        when it is durable

A sync costs the processor as much as a dozen sends, so where many senders are at work the next
one waits for a group of them, a millisecond at most. Few senders never wait.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.disk.syncer import Syncer
from sparrowmq.net.routes import Reply, Request
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.errors import StoreError
from sparrowmq.store.store import Store

GROUP = 16
"""So many sends are worth a sync of their own …"""
CROWD = 20
"""… and are waited for where so many senders were seen. More than a group: who waits for the last
of few waits for a laggard."""
GATHER_S = 0.001
"""The shortest timer there is."""
_NEVER = sys.maxsize


class Waiter(msgspec.Struct, eq=False):
    """A send that is appended but not yet safe."""

    request: Request[Any]
    reply: Reply
    end_offset: int
    deadline_s: float


class Durability:
    """Decides when replies leave, and drives the store's flushes."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        syncer: Syncer,
        arrivals: Arrivals,
        uncancellable: Uncancellable,
    ) -> None:
        self._store = store
        self.syncer = syncer
        self._arrivals = arrivals
        self.is_sync = config.flush is Flush.SYNC
        """Whether replies may have to wait at all."""
        # Bound here: this runs for every message.
        self.announce = self._announce_after_flush if self.is_sync else arrivals.announce
        """A queue grew: wake the pulls that wait for it when they may see what came."""
        self._interval_s = config.flush_interval_s
        self._timeout_s = config.flush_timeout_s
        self._uncancellable = uncancellable
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[Waiter] = deque()
        self._flush_requested = False
        self._active_senders = 0
        """How many senders there seem to be: waiting or just answered when the last sync ended."""
        self._enough = _NEVER
        """So many waiters end the rest of `run` …"""
        self._gathered: asyncio.Future[None] = self._loop.create_future()
        """… which waits for this."""
        self.on_next_flush: Callable[[], None] | None = None
        """Called once, after the next flush that succeeds."""
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def oldest_wait_s(self) -> float:
        """How long the first send in line has been waiting; 0 when nobody waits."""
        if not self._waiters:
            return 0.0
        return self._timeout_s - (self._waiters[0].deadline_s - self._loop.time())

    @property
    def is_stalled(self) -> bool:
        """Whether a send that came now would hardly be answered in time."""
        return self.oldest_wait_s > self._timeout_s / 2

    def reply_when_safe(self, request: Request[Any], reply: Reply, end_offset: int) -> Reply | None:
        """The reply itself unless it has to wait; then None, and the request is answered later."""
        if not self.is_sync or request.is_oneway:
            return reply
        deadline_s = self._loop.time() + self._timeout_s
        # Stored already; a disk that stalls for seconds must not fill the memory with bodies.
        request.body = b""
        self._waiters.append(Waiter(request, reply, end_offset, deadline_s))
        if len(self._waiters) >= self._enough:
            self._end_wait()
        if self._expiry is None:
            self._expiry = self._loop.call_at(deadline_s, self._expire)
        return None

    def request_flush(self) -> None:
        """Flush soon, though no sender waits: a consumer does, or may come."""
        self._flush_requested = True
        self._end_wait()

    def _announce_after_flush(self, topic: str, queue_id: int) -> None:
        self.request_flush()

    async def run(self) -> None:
        """Flush for ever: when somebody waits, else by the interval. Ends with an error only."""
        while True:
            await self._wait_for_work()
            self._flush_requested = False
            async with self._uncancellable:
                await self.flush()

    async def _wait_for_work(self) -> None:
        if not self._waiters and not self._flush_requested:
            await self._gather(1, self._interval_s)
        if self._active_senders >= CROWD and 0 < len(self._waiters) < GROUP:
            await self._gather(GROUP, GATHER_S)

    async def _gather(self, count: int, longest_s: float) -> None:
        """Return when so many sends wait, or the time is over."""
        self._gathered = self._loop.create_future()
        self._enough = count
        timer = self._loop.call_later(longest_s, self._end_wait)
        try:
            await self._gathered
        finally:
            timer.cancel()
            self._enough = _NEVER

    def _end_wait(self) -> None:
        self._enough = _NEVER
        if not self._gathered.done():
            self._gathered.set_result(None)

    async def flush(self) -> None:
        """Sync what is appended now and answer who waited for it.

        The first failed sync ends acknowledgements for good: nobody knows what is on the disk.
        """
        plan = self._store.begin_flush(urgent=bool(self._waiters))
        if plan is not None:
            try:
                await self.syncer.sync(plan)
                shown = self._store.finish_flush(plan)
            except OSError as error:
                self._store.fail(f"fsync failed: {error}")
                self._refuse_all(str(error))
                raise StoreError(f"fsync failed, stopping: {error}") from error
            for topic, queue_id in shown:
                self._arrivals.announce(topic, queue_id)
        self._release()
        if self.on_next_flush is not None:
            tell, self.on_next_flush = self.on_next_flush, None
            tell()

    def _release(self) -> None:
        durable = self._store.durable_log_offset
        self._active_senders = len(self._waiters)
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
