"""When a send is acknowledged and when consumers may see it: at once, or when it is safe.

ASYNC   reply at once; everything is synced every `flush_interval_s`. Consumers see a message at
        once, unless `unsynced_window` others of its queue are not synced yet
SYNC    group commit: all sends that arrive while a sync runs share the next one. Consumers see a
        message when it is durable

Where replication is synchronous, sends wait for slaves as well, and consumers see a message when
enough brokers have it (`replication/confirmation.py`). The reply reports missing or late copies:
the message is stored, and sending it again would store it twice.

A sync takes as much CPU time as a dozen sends, and so does a transfer to a slave with its
acknowledgement. With many active senders the next sync or transfer therefore waits until a group of
sends has gathered, for a millisecond at most; with few senders it never waits, because each send
would then wait for the slowest of them. The number of senders is estimated from the sends that were
waiting when the last sync ended or the last transfer was acknowledged.

A send that waits is a record in a queue, not a coroutine: a sync that answers a thousand of them
resolves no futures and wakes no tasks.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.broker.put_times import PutTimes
from sparrowmq.broker.replication.confirmation import Confirmation
from sparrowmq.disk.syncer import Syncer
from sparrowmq.net.routes import Reply, Request, answer_all
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import AnySend
from sparrowmq.protocol.properties import WAIT_STORE_OK, parse_properties
from sparrowmq.store.errors import StoreError
from sparrowmq.store.store import Store

GROUP = 16
"""This many sends are worth a separate sync or transfer."""
CROWD = 20
"""A sync or transfer waits for a group only if at least this many senders are active. More than a
group, because waiting for the last of a few senders means waiting for the slowest."""
GATHER_S = 0.001
"""The shortest timer that the event loop offers."""
_NEVER = sys.maxsize


class Waiter(msgspec.Struct, eq=False):
    """A send that is appended but not yet safe."""

    request: Request[Any]
    reply: Reply
    end_offset: int
    deadline_s: float
    missing_code: ResponseCode = ResponseCode.SLAVE_NOT_AVAILABLE
    late_code: ResponseCode = ResponseCode.FLUSH_SLAVE_TIMEOUT
    """What the send is answered when slaves are missing or late."""


class Durability:
    """Decides when replies go out, and drives the store's flushes."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        syncer: Syncer,
        arrivals: Arrivals,
        uncancellable: Uncancellable,
        copies: Confirmation | None = None,
    ) -> None:
        """`copies` is given if sends wait for slaves."""
        self._store = store
        self.syncer = syncer
        self._arrivals = arrivals
        self.copies = copies
        self._waits_for_flush = config.flush is Flush.SYNC
        self.is_sync = self._waits_for_flush or copies is not None
        """Whether replies may have to wait at all."""
        # Bound here: this runs for every message.
        self.announce = self._announce_when_safe if self.is_sync else arrivals.announce
        """A queue grew: wake the pulls that wait on it as soon as they may see the messages."""
        self._interval_s = config.flush_interval_s
        self._timeout_s = config.flush_timeout_s
        if copies is not None:
            # One deadline for both, so that waiters expire in the order in which they came.
            slave_s = config.slave_timeout_s
            self._timeout_s = min(slave_s, self._timeout_s) if self._waits_for_flush else slave_s
        self._uncancellable = uncancellable
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[Waiter] = deque()
        self.put_times = PutTimes()
        """How long sends have waited."""
        self._flush_requested = False
        self._active_senders = 0
        """Sends that waited when the last sync ended: an estimate of the number of senders."""
        self._enough = _NEVER
        """The number of waiters that ends the wait of `run`."""
        self._gathered: asyncio.Future[None] = self._loop.create_future()
        """Resolved when that wait ends."""
        self.on_next_flush: Callable[[], None] | None = None
        """Called once, after the next flush that succeeds."""
        self._is_growth_noted = False
        """Whether a call that tells `copies` about new appends is already scheduled."""
        self._replicating_senders = 0
        """The same as `_active_senders` for transfers to slaves: sends that waited when the last
        one was acknowledged."""
        self._feeding: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        if copies is not None:
            copies.request_flush = self._flush_soon
        self._all_answered: asyncio.Event | None = None
        """Set when no send waits any more; exists only while the broker stops."""
        self._no_sync_runs = asyncio.Event()
        self._no_sync_runs.set()

    @property
    def oldest_wait_s(self) -> float:
        """How long the first send in line has been waiting for the disk; 0 if none waits."""
        if not self._waiters or self._waiters[0].end_offset <= self._safe_on_disk:
            return 0.0
        return self._waited_s(self._waiters[0])

    def _waited_s(self, waiter: Waiter) -> float:
        return self._timeout_s - (waiter.deadline_s - self._loop.time())

    @property
    def is_stalled(self) -> bool:
        """Whether a send that came now is unlikely to be acknowledged in time."""
        return self.oldest_wait_s > self._timeout_s / 2

    @property
    def _safe_on_disk(self) -> int:
        """Sends of messages before this log offset do not wait for the disk."""
        return self._store.durable_log_offset if self._waits_for_flush else _NEVER

    def answer_send(self, request: Request[AnySend], reply: Reply, end_offset: int) -> Reply | None:
        """The reply to a send, or None if its sender has to wait until `end_offset` is safe."""
        if self.is_sync and _wants_to_wait(request):
            return self.reply_when_safe(request, reply, end_offset)
        return reply

    def reply_when_safe(
        self,
        request: Request[Any],
        reply: Reply,
        end_offset: int,
        *,
        says_missing_copies: bool = True,
    ) -> Reply | None:
        """The reply itself unless it has to wait; then None, and the request is answered later.

        With `says_missing_copies` false the reply is success even if slaves are missing or late:
        for requests that the client would otherwise repeat.
        """
        if not self.is_sync or request.is_oneway:
            return reply
        deadline_s = self._loop.time() + self._timeout_s
        # Already stored: a disk that stalls for seconds must not fill the memory with bodies.
        request.body = b""
        waiter = Waiter(request, reply, end_offset, deadline_s)
        if not says_missing_copies:
            waiter.missing_code = waiter.late_code = ResponseCode.SUCCESS
        self._waiters.append(waiter)
        # Messages that wait in one of the broker's queues (delayed ones) were not announced.
        self.note_growth()
        if len(self._waiters) >= self._enough:
            self._end_wait()
        if self._expiry is None:
            self._expiry = self._loop.call_at(deadline_s, self._expire)
        return None

    def waiting_reply(self, request: Request[Any]) -> Reply | None:
        """The pending reply to the request for which `reply_when_safe` was called last."""
        last = self._waiters[-1] if self._waiters else None
        return last.reply if last is not None and last.request is request else None

    def request_flush(self) -> None:
        """Flush soon although no sender waits: a consumer waits, or may come."""
        if self.copies is not None and not self._waits_for_flush:
            return  # it waits for slaves; a message whose copies are given up requests a flush
        self._flush_soon()

    def _flush_soon(self) -> None:
        self._flush_requested = True
        self._end_wait()

    def note_growth(self) -> None:
        """Something was stored that no pull waits for; slaves must get it anyway."""
        if self.copies is not None and not self._is_growth_noted:
            self._note_growth()

    def _announce_when_safe(self, topic: str, queue_id: int) -> None:
        if self.copies is not None and not self._is_growth_noted:
            self._note_growth()
        if self._waits_for_flush:
            self.request_flush()

    def _note_growth(self) -> None:
        """Look at the slaves once for everything that this turn of the loop appends: doing so for
        each message took 3 % of a master's CPU time."""
        self._is_growth_noted = True
        self._loop.call_soon(self._take_growth)

    def _take_growth(self) -> None:
        assert self.copies is not None
        self._is_growth_noted = False
        self.copies.mark()
        self._release()
        self._feed_group()

    def _feed_group(self) -> None:
        """Feed slaves the new bytes as soon as they are worth a transfer."""
        if self._replicating_senders < CROWD or len(self._waiters) >= GROUP:
            self._feed()
        elif self._feeding is None:
            self._feeding = self._loop.call_later(GATHER_S, self._feed)

    def _feed(self) -> None:
        assert self.copies is not None
        if self._feeding is not None:
            self._feeding.cancel()
            self._feeding = None
        self.copies.feed()

    def copies_confirmed(self) -> None:
        """Enough slaves have more of the log than before."""
        assert self.copies is not None
        self.copies.show()
        self._replicating_senders = len(self._waiters)
        self._release()
        self._feed_group()

    async def run(self) -> None:
        """Flush forever: when a send or consumer waits, else at the interval. An error ends it."""
        while True:
            await self._wait_for_work()
            # One that `make_durable` began: trying again and again would leave it no turn to end.
            await self._no_sync_runs.wait()
            self._flush_requested = False
            async with self._uncancellable:
                await self.flush()

    async def _wait_for_work(self) -> None:
        waiting = self._waiting_for_disk
        if not waiting and not self._flush_requested:
            enough = len(self._waiters) + 1 if self._waits_for_flush else _NEVER
            await self._gather(enough, self._interval_s)
            waiting = self._waiting_for_disk
        if self._active_senders >= CROWD and 0 < waiting < GROUP:
            await self._gather(len(self._waiters) - waiting + GROUP, GATHER_S)

    @property
    def _waiting_for_disk(self) -> int:
        """How many sends wait for a sync; others may wait for slaves alone."""
        if not self._waits_for_flush or not self._waiters:
            return 0
        if self.copies is None:
            return len(self._waiters)
        durable = self._store.durable_log_offset
        return sum(waiter.end_offset > durable for waiter in self._waiters)

    async def _gather(self, count: int, longest_s: float) -> None:
        """Return when `count` sends wait, or after `longest_s`."""
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
        """Sync what has been appended so far, and answer the sends that waited for it.

        The first failed sync ends acknowledgements for good: from then on the contents of the disk
        are unknown.
        """
        plan = self._store.begin_flush(urgent=self._waiting_for_disk > 0)
        if plan is not None:
            self._no_sync_runs.clear()
            try:
                await self.syncer.sync(plan)
                shown = self._store.finish_flush(plan)
            except OSError as error:
                self._store.fail(f"fsync failed: {error}")
                self._refuse_all(str(error))
                raise StoreError(f"fsync failed, stopping: {error}") from error
            finally:
                self._no_sync_runs.set()
            for topic, queue_id in shown:
                self._arrivals.announce(topic, queue_id)
        if self.copies is not None:
            self.copies.show()
        self._active_senders = len(self._waiters) if self._waits_for_flush else 0
        self._release()
        if self.on_next_flush is not None:
            notify, self.on_next_flush = self.on_next_flush, None
            notify()

    async def make_durable(self) -> None:
        """Return when everything that has been appended so far is durable.

        A sync that is already running covers only part of it, and a second one must not begin
        meanwhile.
        Raises StoreError when a sync fails.
        """
        end = self._store.max_log_offset
        while self._store.durable_log_offset < end:
            if self._store.has_failed:
                raise StoreError("nothing can become durable: a sync or a write failed")
            await self._no_sync_runs.wait()
            await self.flush()

    async def answer_waiting(self, longest_s: float) -> None:
        """Return when no send waits any more; those that wait longer than `longest_s` are answered
        with what they still lack. For a broker that is stopping and takes no further sends."""
        self._all_answered = asyncio.Event()
        if self._waiters:
            with suppress(TimeoutError):
                async with asyncio.timeout(longest_s):
                    await self._all_answered.wait()
        for waiter in self._waiters:
            waiter.deadline_s = self._loop.time()
        self._expire()

    def _release(self) -> None:
        """Answer the sends that are safe by now, or whose copies have been given up."""
        durable, copies = self._safe_on_disk, self.copies
        confirmed = _NEVER if copies is None else copies.confirmed
        answers = []
        oldest = self._waiters[0] if self._waiters else None
        while self._waiters and self._waiters[0].end_offset <= durable:
            waiter = self._waiters[0]
            if waiter.end_offset > confirmed:
                assert copies is not None
                if waiter.end_offset > copies.given_up:
                    break
                waiter.reply.code = waiter.missing_code
            self._waiters.popleft()
            answers.append((waiter.request, waiter.reply))
        if answers and oldest is not None:
            self.put_times.note(len(answers), self._waited_s(oldest))
        answer_all(answers)
        if self._all_answered is not None and not self._waiters:
            self._all_answered.set()

    def _expire(self) -> None:
        """Answer sends that waited too long with what they still lack; their messages are stored.

        A missing copy takes precedence over a missing sync, as in Apache's broker.
        """
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        now = self._loop.time()
        copies = self.copies
        confirmed = _NEVER if copies is None else copies.confirmed
        while self._waiters and self._waiters[0].deadline_s <= now:
            waiter = self._waiters.popleft()
            self.put_times.note(1, self._timeout_s)
            if waiter.end_offset > confirmed:
                assert copies is not None
                waiter.reply.code = waiter.late_code
                copies.give_up(waiter.end_offset)
            else:
                waiter.reply.code = ResponseCode.FLUSH_DISK_TIMEOUT
            waiter.request.answer(waiter.reply)
        if self._waiters:
            self._expiry = self._loop.call_at(self._waiters[0].deadline_s, self._expire)

    def _refuse_all(self, reason: str) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            text = f"the broker's disk failed; whether the message was stored is unknown: {reason}"
            waiter.request.answer(Reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=text))


def _wants_to_wait(request: Request[AnySend]) -> bool:
    """Whether the sender wants its answer only when the message is as safe as it will get."""
    # Search before parsing: senders rarely set it to false, and parsing is expensive.
    text = request.header.properties
    return "WAIT\x01false" not in text or parse_properties(text).get(WAIT_STORE_OK) != "false"
