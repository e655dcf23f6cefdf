"""The lite pull consumer: pulls ahead in the background, and the application polls.

    async with LitePullConsumer("billing", {"orders": "*"}) as consumer:
        for message in await consumer.poll():
            ...

Either topics are subscribed (the group shares the queues) or queues are assigned by hand.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sparrowmq.client.broker_calls import committed_offset, max_offset, min_offset, offset_at
from sparrowmq.client.client import Client
from sparrowmq.client.flow_control import FlowLimits, reason_to_wait
from sparrowmq.client.group_consumer import GroupConsumer
from sparrowmq.client.harvest import Harvest
from sparrowmq.client.held_queue import HeldQueue
from sparrowmq.client.membership import MemberSettings, Membership, QueueListener
from sparrowmq.client.pulling import PullLoop
from sparrowmq.client.strategies import AVG, Strategy
from sparrowmq.client.subscriptions import Filter, Only, Subscriptions
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.subscription import SubscriptionData

_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 20.0
_POLL_S = 5.0


class LitePullConsumer(GroupConsumer):
    """What `poll` returned counts as consumed with the next `poll`, or when it is committed."""

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, Filter] | None = None,
        *,
        name_servers: str | Sequence[str] = "127.0.0.1:9876",
        client: Client | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        offsets_dir: Path | None = None,
        from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET,
        from_timestamp_ms: int | None = None,
        strategy: Strategy = AVG,
        batch: int = 10,
        limits: FlowLimits | None = None,
        limit_all: int = 10_000,
        auto_commit: bool = True,
        listener: QueueListener | None = None,
    ) -> None:
        """`batch` messages at most come from one `poll`. `limit_all` messages at most wait to be
        polled. With `auto_commit` progress is stored every 5 s; else `commit` does it.

        Raises ValueError for an illegal group, topic or expression.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch}, must be 1 or more")
        settings = MemberSettings(
            group=group,
            consume_type=ConsumeType.ACTIVELY,
            model=model,
            offsets_dir=offsets_dir,
            from_where=from_where,
            from_timestamp_ms=from_timestamp_ms,
            strategy=strategy,
            takes_retries=False,
            drops_silent=False,
            listener=listener,
        )
        chosen = Subscriptions(_checked(subscriptions or {}))
        super().__init__(settings, chosen, name_servers, client)
        self._batch = batch
        self._limits = limits or FlowLimits()
        self._limit_all = limit_all
        self._auto_commit = auto_commit
        self._harvest = Harvest()
        self._is_by_hand = False
        self._pulls: PullLoop

    # ---- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop(is_consumed=error is None)

    async def start(self) -> None:
        """Join the group and begin to pull. Raises BrokerRefused for a refused subscription."""
        if self._owns_client:
            await self.client.start()
        self._check_alone()
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
            rates=self.rates,
            log=client.log,
            is_lite=True,
        )
        member = Membership(
            client,
            self._settings,
            self.subscriptions,
            begin=self._pulls.run,
            released=self._released,
        )
        await self._join(member)

    async def stop(self, *, is_consumed: bool = True) -> None:
        """Commit what was polled (with auto commit), unlock, leave the group.

        What the last poll returned counts as consumed unless `is_consumed` says otherwise.
        """
        if self._is_started:
            if is_consumed:
                self._acknowledge()
            self._is_started = False
            self._harvest.arrival.set()
            await self.member.leave(0)
        if self._owns_client:
            await self.client.stop()

    # ---- what to read

    async def subscribe(self, topic: str, choice: Filter = "*") -> None:
        """Share the queues of a topic with the group. Raises ValueError after `assign`."""
        if self._is_by_hand:
            raise ValueError(
                "queues were assigned by hand: subscribe and assign exclude each other"
            )
        _checked({topic: choice})
        self.subscriptions.add(topic, choice, self.client.clock())
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; its queues are handed over."""
        self.subscriptions.remove(topic)
        await self._subscriptions_changed()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them. Raises ValueError after `subscribe`.

        Call it again to read others; what was polled before counts as consumed.
        """
        self._running()
        self._acknowledge()
        if len(self.subscriptions):
            raise ValueError("topics are subscribed: subscribe and assign exclude each other")
        self._is_by_hand = True
        self.member.assign_by_hand()
        wanted = set(queues)
        assignment = self.member.assignment
        await assignment.give_up(set(self.member.held) - wanted, "not assigned any more")
        for topic in sorted({queue.topic for queue in wanted}):
            await self.queues(topic)
        await assignment.take(wanted)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor poll these queues until `resume`."""
        self._harvest.paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these queues."""
        self._harvest.paused.difference_update(queues)
        self._harvest.arrival.set()

    # ---- where to read

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll goes on at an offset. Raises ValueError for one the queue does not have, or a queue
        that is not ours."""
        held = self._held(queue)
        low, high = await self.offset_range(queue)
        if not low <= offset <= high:
            raise ValueError(f"offset {offset} is not in {queue}, which has {low} to {high}")
        self._harvest.move(held, offset)
        # The pull that waits at the broker for the old offset is given up.
        if held.task is not None:
            held.task.cancel()
        if held.may_begin:
            tasks = self.client.tasks
            held.task = tasks.create_task(self._pulls.run(held), name=f"pull {queue}")

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll goes on at the oldest message."""
        await self.seek(queue, (await self.offset_range(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll goes on with what comes next."""
        await self.seek(queue, (await self.offset_range(queue))[1])

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Poll goes on at the first message stored at or after a time."""
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    async def offset_range(self, queue: MessageQueue) -> tuple[int, int]:
        """The oldest offset, and the one that comes next."""
        return await min_offset(self.client, queue), await max_offset(self.client, queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        return await offset_at(self.client, queue, timestamp_ms)

    # ---- reading

    async def poll(self, timeout_s: float = _POLL_S) -> list[MessageExt]:
        """The next messages, all of one queue; none when none came in time.

        What the poll before returned counts as consumed now.
        """
        self._running()
        self._acknowledge()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._is_started:
                    found = self._harvest.next_batch()
                    if found:
                        return found
                    self._harvest.arrival.clear()
                    await self._harvest.arrival.wait()
        return []

    def _acknowledge(self) -> None:
        held = self._harvest.acknowledge()
        if held is not None and self._auto_commit:
            self.member.offsets.update(held.queue, held.progress, may_lower=True)

    # ---- progress

    def position(self, queue: MessageQueue) -> int:
        """The smallest offset that is not consumed. Raises ValueError for a queue not ours."""
        return self._held(queue).progress

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store progress now: of everything polled, or as given. Raises what keeps it from being
        stored: NoRoute, BrokerRefused, NetError, OSError."""
        chosen = self._note(offsets)
        await self.member.offsets.persist(list(chosen), raises=True)

    def commit_later(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """The same without waiting: it is stored in the background within 5 s."""
        self._note(offsets)

    def _note(self, offsets: Mapping[MessageQueue, int] | None) -> Mapping[MessageQueue, int]:
        member = self._running()
        if offsets is None:
            self._harvest.acknowledge()
            offsets = {queue: held.progress for queue, held in member.held.items()}
        for queue, offset in offsets.items():
            member.offsets.update(queue, offset, may_lower=True)
        return offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is stored for the group; None when there is none."""
        noted = self._running().offsets.get(queue)
        if self._settings.is_broadcasting:
            return noted if noted >= 0 else None
        return await committed_offset(self.client, self.group, queue)

    def _released(self, held: HeldQueue) -> None:
        """A queue goes: what was polled of it is progress."""
        if self._auto_commit:
            self.member.offsets.update(held.queue, held.progress, may_lower=True)
        self._harvest.forget(held)

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

    def _held(self, queue: MessageQueue) -> HeldQueue:
        held = self._running().held.get(queue)
        if held is None:
            raise ValueError(f"{queue} is not read by this consumer now: see assignment()")
        return held


def _checked(filters: Mapping[str, Filter]) -> Mapping[str, Filter]:
    for topic, choice in filters.items():
        if isinstance(choice, Only):
            raise ValueError(f"topic {topic}: a consumer that polls filters what it polled itself")
    return filters
