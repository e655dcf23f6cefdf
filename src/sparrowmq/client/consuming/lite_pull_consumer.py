"""The lite pull consumer: pulls ahead in the background, and the application polls.

    async with LitePullConsumer("billing", {"orders": "*"}) as consumer:
        for message in await consumer.poll():
            ...

Either topics are subscribed (the group shares the queues) or queues are assigned by hand.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from sparrowmq.client.argument_checks import check_kind, check_offsets, check_whole
from sparrowmq.client.broker_calls import committed_offset, max_offset, min_offset
from sparrowmq.client.consuming.poll_buffer import Harvest
from sparrowmq.client.consuming.pull_loop import FlowLimits, PullLoop, reason_to_wait
from sparrowmq.client.errors import QueueLost
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.member_settings import StartSettings
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.subscriptions import Filter, Subscriptions, without_functions
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.subscription import SubscriptionData

# Going elsewhere in the queues a consumer reads: the half of lite pull that moves.


class Seeking(GroupConsumer):
    """Positions in the queues that are held; each move gives up what was pulled."""

    def __init__(
        self, group: str, subscriptions: Subscriptions, given: StartSettings, **kind: Any
    ) -> None:
        super().__init__(group, subscriptions, given, **kind)
        self._harvest = Harvest()
        self._pulls: PullLoop

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll goes on at an offset. Raises ValueError for one the queue does not have, or a queue
        that is not ours."""
        self._held(queue)
        self._running_here()
        low = await min_offset(self.client, queue)
        high, epoch = await max_offset(self.client, queue)
        if not low <= offset <= high:
            raise ValueError(f"offset {offset} is not in {queue}, which has {low} to {high}")
        held = self._held(queue)  # not before: it may have been given up, or taken anew
        self._harvest.move(held, offset)
        held.epoch = epoch
        # The pull that waits at the broker for the old offset is given up.
        if held.task is not None:
            held.task.cancel()
        if held.may_begin:
            held.task = self.client.keep(partial(self._pulls.run, held), f"pull {queue}")

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll goes on at the oldest message."""
        await self.seek(queue, (await self.offset_range(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll goes on with what comes next."""
        await self.seek(queue, (await self.offset_range(queue))[1])

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Poll goes on at the first message stored at or after a time."""
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    def _held(self, queue: MessageQueue) -> HeldQueue:
        held = self._running().held.get(queue)
        if held is None:
            raise ValueError(f"{queue} is not read by this consumer now: see assignment()")
        return held


_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 20.0
_POLL_S = 5.0


class LitePullConsumer(Seeking):
    """What `poll` returned counts as consumed with the next `poll`, or when it is committed."""

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
        """`batch` messages at most come from one `poll`. `limit_all` messages at most wait to be
        polled. With `auto_commit` progress is stored every 5 s; else `commit` does it.

        Raises ValueError for an illegal group, topic or expression.
        """
        check_whole("batch", batch, 1)
        check_whole("limit_all", limit_all, 1)
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
        self._is_by_hand = False

    # ---- life

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop(is_consumed=error is None)

    async def _open(self) -> None:
        await self.start()

    async def start(self) -> None:
        """Join the group and begin to pull. Raises BrokerRefused for a refused subscription,
        ValueError for a client id or subscription that does not fit its group."""
        with self._starting:
            await super()._open()
            await self._join(self._make_member)

    def _make_member(self) -> Membership:
        client = self.client
        self._pulls = PullLoop(
            client,
            self.group,
            pull_batch=self._batch,
            suspend_s=_SUSPEND_S,
            call_timeout_s=_PULL_TIMEOUT_S,
            subscription=self._subscription,
            committed=lambda held: -1,  # progress is what was polled and committed, not pulled
            reason_to_wait=self._reason_to_wait,
            paused=lambda held: "the queue is paused" if held.queue in self._harvest.paused else "",
            arrived=self._harvest.put,
            moved=self._moved,
            shortened=self._shortened,
            rates=self.rates,
            log=client.log,
            is_lite=True,
        )
        return Membership(
            client,
            self._settings,
            self.subscriptions,
            begin=self._pulls.run,
            released=self._released,
        )

    async def stop(self, *, is_consumed: bool = True) -> None:
        """Commit what was polled (with auto commit), unlock, leave the group.

        What the last poll returned counts as consumed unless `is_consumed` says otherwise.
        """
        await self._starting.until_over()
        if self._is_started:
            if is_consumed:
                self._acknowledge()
            self._harvest.arrival.set()
        await self._leave(0.0)

    # ---- what to read

    async def subscribe(self, topic: str, choice: Filter = "*") -> None:
        """Share the queues of a topic with the group. Raises ValueError after `assign`."""
        if self._is_by_hand:
            raise ValueError(
                "queues were assigned by hand: subscribe and assign exclude each other"
            )
        without_functions({topic: choice})
        self.subscriptions.add(topic, choice, self.client.clock())
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; its queues are handed over."""
        self.subscriptions.remove(topic)
        await self._subscriptions_changed()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them. Raises ValueError after `subscribe`.

        Call it again to read others; what was polled before counts as consumed. Calls take turns:
        what the last one says is read. Raises NoRoute, and nothing changes.
        """
        self._running()
        if len(self.subscriptions):
            raise ValueError("topics are subscribed: subscribe and assign exclude each other")
        wanted = frozenset(queues)
        for queue in wanted:
            check_kind("a queue", queue, MessageQueue)
        self._is_by_hand = True

        async def look_up() -> None:
            for topic in sorted({queue.topic for queue in wanted}):
                await self.queues(topic)
            self._acknowledge()

        await self.member.assign_by_hand(wanted, look_up)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor poll these queues until `resume`."""
        self._harvest.paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these queues."""
        self._harvest.paused.difference_update(queues)
        self._harvest.arrival.set()

    # ---- reading

    async def poll(self, timeout_s: float = _POLL_S) -> list[MessageExt]:
        """The next messages, all of one queue; none when none came in time.

        What the poll before returned counts as consumed now.
        """
        self._running_here()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._is_started:
                    self._acknowledge()  # each time: another poll may have returned something
                    found = self._harvest.next_batch(self.member.may_work)
                    if found:
                        return found
                    await self._harvest.more()
        return []

    def _acknowledge(self) -> None:
        held = self._harvest.acknowledge()
        if held is not None and self._auto_commit:
            self._progressed(held)

    # ---- progress

    def position(self, queue: MessageQueue) -> int:
        """The smallest offset that is not consumed. Raises ValueError for a queue not ours."""
        return self._held(queue).progress

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store progress now: of everything polled, or as given. Raises ValueError for what is no
        offset, QueueLost, and what else keeps it from being stored: NoRoute, BrokerRefused,
        NetError, OSError."""
        self._running_here()
        await self.member.store(self._note(offsets))

    def commit_later(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """The same without waiting: it is stored in the background within 5 s. Raises ValueError
        and QueueLost."""
        self._note(offsets)

    def _note(self, offsets: Mapping[MessageQueue, int] | None) -> Mapping[MessageQueue, int]:
        member = self._running()
        if offsets is None:
            self._harvest.acknowledge()
            offsets = {queue: held.progress for queue, held in member.held.items()}
        check_offsets(offsets)
        for queue in offsets:
            if member.has_leases and queue not in member.held:
                raise QueueLost(queue)  # its progress is another member's
        for queue, offset in offsets.items():
            epoch = member.held[queue].epoch if queue in member.held else None
            member.offsets.update(queue, offset, epoch=epoch, may_lower=True)
        return offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is stored for the group; None when there is none."""
        noted = self._running_here().offsets.get(queue)
        if self._settings.is_broadcasting:
            return noted if noted >= 0 else None
        stored = await committed_offset(self.client, self.group, queue)
        return None if stored is None else stored.offset

    def _released(self, held: HeldQueue) -> None:
        """A queue goes: what was polled of it is progress."""
        if self._auto_commit:
            self._progressed(held)
        self._harvest.forget(held)

    def _progressed(self, held: HeldQueue) -> None:
        progress, epoch = held.progress, held.epoch
        self.member.offsets.update(held.queue, progress, epoch=epoch, may_lower=True)

    # ---- pulling

    def _subscription(self, topic: str) -> SubscriptionData | None:
        known = self.subscriptions.get(topic)
        if known is None and self._is_by_hand:
            return SubscriptionData.build(topic, "*", version=0)
        return known

    def _reason_to_wait(self, held: HeldQueue) -> str:
        waiting = sum(len(one.process_queue) for one in self.member.held.values())
        if waiting > self._limit_all:
            return f"{waiting} messages wait to be polled, at most {self._limit_all} may"
        return reason_to_wait(held.process_queue, self._limits)

    def _moved(self, held: HeldQueue, offset: int) -> None:
        self.client.log.warning(
            "offset %d of %s is out of range, going on at %d", held.next_offset, held.queue, offset
        )
        self._harvest.move(held, offset)

    def _shortened(self, held: HeldQueue, end: int, epoch: int | None) -> None:
        self.member.rewind(held, end, epoch)
