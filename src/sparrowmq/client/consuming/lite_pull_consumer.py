"""The lite pull consumer: pulls ahead in the background while the application polls.

    async with LitePullConsumer("billing", {"orders": "*"}) as consumer:
        for message in await consumer.poll():
            ...

Either subscribe to topics (the group shares the queues) or assign queues manually.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Unpack

from sparrowmq.client.argument_checks import (
    check_flags,
    check_kind,
    check_number,
    check_offsets,
    check_queues,
    check_whole,
)
from sparrowmq.client.broker_calls import Position, committed_offset, max_offset, min_offset
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.poll_buffer import PollBuffer
from sparrowmq.client.consuming.pull_loop import FlowLimits, PullLoop, reason_to_wait
from sparrowmq.client.errors import QueueLost
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.held_queue import HeldQueue, pauses
from sparrowmq.client.group.member_settings import MemberSettings, StartSettings
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.queue_handover import PullTask, QueueReader
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rate_limit import RateLimit, check_shares
from sparrowmq.client.group.running_info import ConsumeRates
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.client.subscriptions import Filter, Subscriptions, without_functions
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.subscription import SubscriptionData

_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 20.0
_POLL_S = 5.0


@checks_setting_names
class LitePullConsumer(GroupConsumer):
    """Pulls ahead in the background; the application calls `poll`. What `poll` returned counts as
    consumed at the next `poll`, or when it is committed."""

    _is_manual = False
    """Whether queues are assigned manually."""

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, Filter] | None = None,
        *,
        batch: int = 10,
        limits: FlowLimits | None = None,
        limit_all: int = 10_000,
        auto_commit: bool = True,
        **settings: Unpack[StartSettings],
    ) -> None:
        """One `poll` returns at most `batch` messages. Pulling pauses while more than `limit_all`
        messages wait to be polled. With `auto_commit` progress is stored every 5 s; otherwise call
        `commit`.

        Raises ValueError for an illegal group, topic or expression.
        """
        check_whole("batch", batch, 1)
        check_whole("limit_all", limit_all, 1)
        check_flags(auto_commit=auto_commit)
        check_kind("limits", limits or FlowLimits(), FlowLimits)
        super().__init__(
            group,
            Subscriptions(without_functions(subscriptions or {})),
            settings,
            consume_type=ConsumeType.ACTIVELY,
            takes_retries=False,
            drops_silent=False,
        )
        self._batch = batch
        self._limits = limits or FlowLimits()
        self._limit_all = limit_all
        self._auto_commit = auto_commit
        self._buffer = PollBuffer()
        self._polled: set[MessageQueue] = set()
        """Queues that were read from: one that is not held any more went to another member."""
        self._has_subscribed = bool(subscriptions)
        self._reader: LiteReader

    # ---- lifecycle

    async def _close(self, error: BaseException | None) -> None:
        await self.stop(is_consumed=error is None)

    async def _open(self) -> None:
        await self.start()

    async def start(self, *, wait_s: float | None = None) -> None:
        """Join the group and start pulling. Raises BrokerRefused if a broker rejects a
        subscription, ValueError for a client id or subscription that conflicts with the group.

        With `wait_s`, waits up to that long for a name server and raises NoNameServer if none
        answers. Without, starts at once, and if no name server answers, logs a warning and begins
        to consume when one does."""
        await self._start_with(self._make_member, wait_s)

    def _make_member(self) -> Membership:
        ownership = QueueOwnership(self._client, self._settings)
        self._reader = LiteReader(
            self._client,
            self._settings,
            self._subscriptions,
            ownership,
            self._buffer,
            self._rates,
            self._rate_limit,
            pull_batch=self._batch,
            limits=self._limits,
            limit_all=self._limit_all,
            auto_commit=self._auto_commit,
        )
        return Membership(
            self._client,
            self._settings,
            self._subscriptions,
            ownership,
            self._reader,
            self._rate_limit,
        )

    async def stop(self, *, is_consumed: bool = True) -> None:
        """Commit what was polled (with auto commit), unlock, leave the group.

        What the last poll returned counts as consumed unless `is_consumed` says otherwise.
        """
        await self._starting.until_none()
        if self._is_started:
            if is_consumed:
                self._acknowledge()
            self._buffer.arrival.set()
        await self._leave(0.0)

    # ---- what to read

    @property
    def _has_topics(self) -> bool:
        return not self._is_manual

    async def subscribe(self, topic: str, choice: Filter = "*") -> None:
        """Share the queues of a topic with the group. Raises ValueError after `assign`."""
        if self._is_manual:
            raise ValueError(
                "queues were assigned manually: subscribe and assign cannot be combined"
            )
        without_functions({topic: choice})
        self._subscriptions.add(topic, choice, self._client.clock())
        self._has_subscribed = True
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; its queues are handed over."""
        self._subscriptions.remove(topic)
        await self._subscriptions_changed()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, even if other members read them too.

        Raises ValueError after `subscribe`.

        Call it again to change the queues; what was polled before counts as consumed. Calls take
        turns, and the last one wins. If it raises NoRoute, nothing has changed.
        """
        self._running()
        if len(self._subscriptions):
            raise ValueError("topics are subscribed: subscribe and assign cannot be combined")
        wanted = frozenset(check_queues(queues))
        check_shares(self._rate_limit.rate, is_broadcasting=False, has_topics=False)
        self._is_manual = self._reader.is_manual = True

        async def look_up() -> None:
            for topic in sorted({queue.topic for queue in wanted}):
                await self.queues(topic)
            self._acknowledge()

        await self._member.assign_manually(wanted, look_up)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues until `resume`."""
        self._buffer.paused.update(check_queues(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Continue with these queues after `pause`."""
        self._buffer.paused.difference_update(check_queues(queues))
        self._buffer.arrival.set()

    # ---- reading

    async def poll(self, timeout_s: float = _POLL_S) -> list[MessageExt]:
        """Return the next messages, all from one queue, or an empty list if none came in time.

        What the previous poll returned counts as consumed now. Raises ValueError before the first
        `subscribe` or `assign`.
        """
        self._running_here()
        check_number("timeout_s", timeout_s, 0)
        if not (self._has_subscribed or self._is_manual):
            raise ValueError("nothing to poll: subscribe to a topic or assign queues first")
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._is_started:
                    self._acknowledge()  # each time: another poll may have returned something
                    found = await self._next_batch()
                    if found:
                        self._polled.add(found[0].queue)
                        return found
                    await self._buffer.more()
        return []

    async def _next_batch(self) -> list[MessageExt]:
        """The next batch of pulled messages, cut to what the rate limit allows."""
        ownership, limit = self._member.ownership, self._rate_limit
        if limit.rate is None or not self._buffer.has_ready:
            return self._buffer.next_batch(ownership)
        most = await limit.some(self._batch)
        found = self._buffer.next_batch(ownership, most)
        limit.give_back(most - len(found))
        return found

    def _acknowledge(self) -> None:
        held = self._buffer.acknowledge()
        if held is not None:
            self._reader.note_polled(held)

    # ---- progress

    def position(self, queue: MessageQueue) -> int:
        """The smallest offset not yet consumed. Raises ValueError if this member does not hold the
        queue."""
        return self._held(queue).progress

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store progress now: of everything polled, or the given offsets. Raises ValueError for an
        offset past the end of its queue, or a queue that this member never read, QueueLost, and
        NoRoute, BrokerRefused, NetError or OSError if the progress cannot be stored."""
        held = self._running_here().held
        if offsets is not None:
            check_offsets(offsets)
            # What was pulled exists: only other offsets cost a request.
            for queue in [one for one in offsets if one in held]:
                if offsets[queue] > held[queue].next_offset:
                    await self._check_end(queue, offsets[queue])
        await self._member.store(self._note(offsets))

    async def _check_end(self, queue: MessageQueue, offset: int) -> None:
        high, _ = await max_offset(self._client, queue)
        if offset > high:
            raise ValueError(f"offset {offset} is past the end of {queue}, which is {high}")

    def commit_later(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Like `commit` without waiting: progress is stored in the background within 5 s. Raises
        ValueError and QueueLost."""
        self._note(offsets)

    def _note(self, offsets: Mapping[MessageQueue, int] | None) -> Mapping[MessageQueue, int]:
        member = self._running()
        if offsets is None:
            self._buffer.acknowledge()
            offsets = {queue: held.progress for queue, held in member.held.items()}
        check_offsets(offsets)
        for queue in offsets:
            if member.ownership.has_leases and queue not in member.held:
                if queue in self._polled:
                    raise QueueLost(queue)  # its progress is another member's
                self._held(queue)
        for queue, offset in offsets.items():
            epoch = member.held[queue].epoch if queue in member.held else None
            member.offsets.update(queue, Position(offset, epoch), may_lower=True)
        return offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset stored for the group, or None."""
        noted = self._running_here().offsets.get(queue)
        if self._settings.is_broadcasting:
            return noted if noted >= 0 else None
        stored = await committed_offset(self._client, self.group, queue)
        return None if stored is None else stored.offset

    # ---- going elsewhere

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue polling at `offset`. Raises ValueError if the queue does not have that offset,
        or this member does not hold the queue."""
        self._held(queue)
        self._running_here()
        low = await min_offset(self._client, queue)
        high, epoch = await max_offset(self._client, queue)
        if not low <= offset <= high:
            raise ValueError(f"offset {offset} is not in {queue}, which has {low} to {high}")
        held = self._held(queue)  # look it up again: it may have been given up or retaken meanwhile
        self._buffer.move(held, offset)
        held.epoch = epoch
        self._reader.pull_anew(held)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue polling at the oldest message."""
        await self.seek(queue, (await self.offset_range(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Skip to the end of the queue: poll returns only messages stored from now on."""
        await self.seek(queue, (await self.offset_range(queue))[1])

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: datetime | int) -> None:
        """Continue polling at the first message stored at or after a time: a datetime with a zone,
        or milliseconds since 1970."""
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    def waits(self) -> dict[MessageQueue, str]:
        """Queues that are not being pulled now, each with the reason. Raises NotStarted."""
        return pauses(self._running().held.values())

    def _held(self, queue: MessageQueue) -> HeldQueue:
        held = self._running().held.get(queue)
        if held is None:
            raise ValueError(f"{queue} is not read by this consumer now: see assignment()")
        return held


class LiteReader(QueueReader):
    """Pulls the queues of a lite pull consumer into its buffer."""

    def __init__(
        self,
        client: ClientCore,
        settings: MemberSettings,
        subscriptions: Subscriptions,
        ownership: QueueOwnership,
        buffer: PollBuffer,
        rates: ConsumeRates,
        rate_limit: RateLimit,
        *,
        pull_batch: int,
        limits: FlowLimits,
        limit_all: int,
        auto_commit: bool,
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._ownership = ownership
        self._buffer = buffer
        self._limits = limits
        self._limit_all = limit_all
        self._rate_limit = rate_limit
        self._auto_commit = auto_commit
        self.is_manual = False
        """Whether queues are assigned manually; their topics then need no subscription."""
        self._pulls = PullLoop(
            client,
            settings.group,
            ownership,
            self,
            rates,
            pull_batch=pull_batch,
            suspend_s=_SUSPEND_S,
            call_timeout_s=_PULL_TIMEOUT_S,
            is_lite=True,
        )

    def pull_anew(self, held: HeldQueue) -> None:
        """Cancel the pull that waits at the broker for the old offset, and pull at the new one."""
        if held.task is not None:
            held.task.cancel()
        if held.may_begin:
            held.task = self._client.keep(self.pull_task(held), f"pull {held.queue}")

    def note_polled(self, held: HeldQueue) -> None:
        """With auto commit, record what was polled of a queue as its progress."""
        if self._auto_commit:
            self._ownership.offsets.update(held.queue, held.position, may_lower=True)

    # ---- as the reader of queues

    def pull_task(self, held: HeldQueue) -> PullTask:
        """Pull while the queue is held."""
        return partial(self._pulls.run, held)

    def released(self, held: HeldQueue) -> None:
        """A queue is given up: what was polled of it becomes its progress."""
        self.note_polled(held)
        self._buffer.forget(held)

    # ---- as the target of pulls

    def subscription(self, topic: str) -> SubscriptionData | None:
        """The subscription of a topic: everything if its queues are assigned manually."""
        known = self._subscriptions.get(topic)
        if known is None and self.is_manual:
            return SubscriptionData.build(topic, "*", version=0)
        return known

    def committed(self, held: HeldQueue) -> int:
        """-1, for none: progress is what was polled and committed, not what was pulled."""
        return -1

    def paused(self, held: HeldQueue) -> str:
        """The reason if the application paused this queue, else empty."""
        return "the queue is paused" if held.queue in self._buffer.paused else ""

    def reason_to_wait(self, held: HeldQueue) -> str:
        """Flow control: limits on messages waiting to be polled, in all queues and in this one. It
        names the rate limit while that makes a poll wait."""
        waiting = sum(len(one.process_queue) for one in self._ownership.held.values())
        if waiting > self._limit_all:
            reason = (
                f"{waiting:,} messages wait to be polled; at most {self._limit_all:,} are allowed"
            )
        else:
            reason = reason_to_wait(held.process_queue, self._limits)
        limited = self._rate_limit.reason if reason else ""
        return f"{limited}; {reason}" if limited else reason

    def arrived(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """Keep messages until they are polled."""
        self._buffer.put(held, messages)

    def moved(self, held: HeldQueue, offset: int) -> None:
        """Forget what was pulled: the queue continues at another offset."""
        self._buffer.move(held, offset)
