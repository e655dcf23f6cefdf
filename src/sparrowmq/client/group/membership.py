"""A consumer's place in its group: subscriptions, queues, progress, and the loops that keep them.

start: routes ▶ heartbeat to all brokers ▶ first rebalance      (brokers tell the other members)
stop:  handlers finish ▶ persist ▶ unlock ▶ unregister          (and again)
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError, QueueLost
from sparrowmq.client.failures import ends_caller
from sparrowmq.client.group.assignment import NEVER, Assignment
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.leases import Leases
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.offsets import LocalOffsets, Offsets, RemoteOffsets, start_at
from sparrowmq.client.group.ownership import Ownership
from sparrowmq.client.group.rebalance import ByHand, Rebalancing
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic, retry_topic


class Membership:
    """Lives from `join` to `leave`."""

    def __init__(
        self,
        client: Client,
        settings: MemberSettings,
        subscriptions: Subscriptions,
        *,
        begin: Callable[[HeldQueue], Coroutine[Any, Any, None]] | None = None,
        released: Callable[[HeldQueue], None] = lambda held: None,
        assigned: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin` pulls a queue, `released` sees it when its handlers are done, `assigned` is told
        of a new assignment before brokers and listeners are."""
        log, group = client.log, settings.group
        self.client = client
        self.settings = settings
        self.subscriptions = subscriptions
        self.started_ms = client.clock()
        # Who names a time means it, also where the queue is young.
        has_time = settings.from_where is ConsumeFromWhere.TIMESTAMP
        home = settings.offsets_dir or Path.home() / ".sparrowmq" / "offsets"
        self.offsets: Offsets = (
            LocalOffsets(home, client.client_id, group, log)
            if settings.is_broadcasting
            else RemoteOffsets(client, group, log, young_is_0=not has_time)
        )
        has_leases = settings.has_leases and not settings.is_broadcasting
        leases = Leases(client, group, log) if has_leases else None
        self.assignment = Assignment(
            client,
            group,
            self.offsets,
            leases,
            is_orderly=settings.is_orderly,
            start_at=partial(start_at, client, settings, self.started_ms),
            begin=begin,
            released=released,
            make_sure=self.make_sure,
            may_go=self.wake_at_once,
            log=log,
        )
        self._ownership = (
            None
            if leases is None
            else Ownership(
                client,
                leases,
                self.offsets,
                self.assignment,
                is_orderly=settings.is_orderly,
                wake=self.wake,
            )
        )
        self.rebalancing = Rebalancing(
            client,
            group,
            settings.strategy,
            self.assignment,
            is_broadcasting=settings.is_broadcasting,
            drops_silent=settings.drops_silent,
            topics=lambda: subscriptions.topics,
            changed=self._changed,
            log=log,
        )
        self._assigned = assigned
        self._steps = log.getChild("rebalance")
        self._loops: list[asyncio.Task[None]] = []
        self._is_leaving = False

    @property
    def held(self) -> dict[MessageQueue, HeldQueue]:
        """The queues that are ours."""
        return self.assignment.held

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say."""
        return ConsumerData(
            group_name=self.settings.group,
            consume_type=self.settings.consume_type,
            message_model=self.settings.model,
            consume_from_where=self.settings.from_where,
            subscription_data_set=self.subscriptions.all(),
        )

    async def join(self) -> None:
        """Announce the member and begin to rebalance. Its consumer is in `client.consumers`."""
        settings, client = self.settings, self.client
        now_ms = client.clock()
        if settings.takes_retries and not settings.is_broadcasting:
            self.subscriptions.add(retry_topic(settings.group), "*", now_ms)
        self.subscriptions.renew(self.subscriptions.topics, now_ms)
        for topic in sorted(self.subscriptions.topics):
            with contextlib.suppress(ClientError):
                await client.route_table.refresh(topic)
        await client.heartbeats.send_everywhere()
        client.route_table.changed.append(self._route_changed)
        loops = {"rebalance": self.rebalancing.run, "progress": self._persist_offsets}
        if self._ownership is not None:
            loops["ownership"] = self._ownership.keep
        group = settings.group
        self._loops = [
            client.keep(run, f"{what} of group {group}", may_end=self._may_loops_end)
            for what, run in loops.items()
        ]

    async def leave(self, within_s: float, overdue: Callable[[], None] = lambda: None) -> None:
        """Let handlers finish within a time (`overdue` ends the others), persist, unlock,
        unregister."""
        try:
            await self._give_up(within_s, overdue)
            self.client.consumers.pop(self.settings.group, None)
            await self.client.heartbeats.unregister(consumer_group=self.settings.group)
        except asyncio.CancelledError:
            # Nobody waits for the rest: what is held is let go, and goodbye said all the same.
            self.assignment.abandon()
            self.client.consumers.pop(self.settings.group, None)
            self.client.heartbeats.unregister_later(self.settings.group)
            raise
        self._steps.debug("%s: stop: unregistered", self.settings.group)

    async def _give_up(self, within_s: float, overdue: Callable[[], None]) -> None:
        self._is_leaving = True
        for task in self._loops:
            task.cancel()
        with contextlib.suppress(ValueError):
            self.client.route_table.changed.remove(self._route_changed)
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        await self.assignment.give_up_all(within_s, overdue)

    def _may_loops_end(self) -> bool:
        """Whether somebody else than a listener or a strategy can have cancelled them."""
        return self._is_leaving or self.client.is_ending

    async def until_left(self) -> None:
        """Return when its loops have ended: `leave` was called, or the client is ending."""
        if self._loops:  # not gathered: a caller that is cancelled must not take them with it
            await asyncio.wait(self._loops)

    def wake(self) -> None:
        """Rebalance soon."""
        self.rebalancing.wake()

    def wake_at_once(self) -> None:
        """Rebalance now: a queue can be given up or taken that had to stay where it was."""
        self.rebalancing.wake_at_once()

    async def move(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on at offsets an operator chose. Raises ValueError in a broadcasting group."""
        if self.settings.is_broadcasting:
            raise ValueError(
                f"group {self.settings.group} is BROADCASTING: each member keeps its own progress,"
                " so it cannot be reset from outside; change the file of offsets instead"
            )
        try:
            moved = await self.assignment.move(offsets)
            self.client.log.info("offsets of %s reset: %s", self.settings.group, moved)
        finally:
            self.wake()

    def rewind(self, held: HeldQueue, end: int, epoch: int | None) -> None:
        """A broker says that a queue got shorter: messages after `end` are new in this epoch."""
        held.leave(asyncio.get_running_loop().time())
        self.client.tasks.create_task(self._rewind(held, end, epoch), name=f"rewind {held.queue}")

    async def _rewind(self, held: HeldQueue, end: int, epoch: int | None) -> None:
        try:
            await self.assignment.rewind(held, end, epoch)
        finally:
            self.wake_at_once()

    async def assign_by_hand(
        self, queues: Collection[MessageQueue], look_up: Callable[[], Awaitable[None]]
    ) -> None:
        """Hold exactly these queues from now on, without waiting for whoever else holds them.
        `look_up` comes before anything changes, and may raise."""
        if self._ownership is not None:
            self._ownership.forget()
            self._ownership = None
        self.assignment.do_without_leases()
        by_hand = self.rebalancing.by_hand or ByHand(self.assignment)
        self.rebalancing.by_hand = by_hand
        if await by_hand.choose(queues, look_up) < NEVER:
            self.wake()

    def is_sure(self, held: HeldQueue) -> bool:
        """Whether our progress in a queue counts: others may have got it without our knowing."""
        return self._ownership is None or self._ownership.is_sure(held)

    def may_work(self, held: HeldQueue) -> bool:
        """Whether a concurrent handler may begin something on a queue."""
        return self._ownership is None or self._ownership.may_work(held)

    async def has_lock(self, held: HeldQueue) -> bool:
        """Whether the next batch of an ordered queue may be handed out."""
        return await self.make_sure(held)

    @property
    def has_leases(self) -> bool:
        """Whether queues are locked at their brokers."""
        return self._ownership is not None

    async def store(self, queues: Iterable[MessageQueue]) -> None:
        """Store progress now. Raises QueueLost for a queue that others have got meanwhile, and what
        else keeps it from being stored: NoRoute, BrokerRefused, NetError, OSError."""
        chosen = [(queue, self.held.get(queue)) for queue in queues]
        for queue, held in chosen:  # asked for each: storing another's may have taken long
            if held is not None and not await self.make_sure(held) and held.is_dropped:
                raise QueueLost(queue)
            await self.offsets.persist([queue], raises=True)

    async def make_sure(self, held: HeldQueue) -> bool:
        """Whether a queue is certainly ours, asking its broker where that is not known."""
        return self._ownership is None or await self._ownership.make_sure(held)

    # ---- loops

    async def _persist_offsets(self) -> None:
        while True:
            await asyncio.sleep(self.settings.persist_s)
            for held in tuple(self.held.values()):
                if self.is_sure(held):  # asked for each: storing another's may have taken long
                    await self.offsets.persist([held.queue])

    # ---- rebalance

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.wake()

    async def _changed(self, topic: str, queues: list[MessageQueue]) -> None:
        now_ms = self.client.clock()
        self.subscriptions.renew([topic], now_ms)
        self._step(topic, f"version {now_ms}")
        self._assigned()
        self._step(topic, f"limits for {len(self.held)} queues")
        await self.client.heartbeats.send_everywhere()
        self._step(topic, "heartbeat to all brokers")
        listener = self.settings.listener
        if listener is None or is_retry_topic(topic):
            return
        mine = sorted(queue for queue in self.held if queue.topic == topic)
        try:
            listener(topic, queues, mine)
        except BaseException as error:
            if ends_caller(error):
                raise
            group, log = self.settings.group, self.client.log
            text = "queue listener of group %s failed for %s: %r"
            log.error(text, group, topic, error, exc_info=error)
        self._step(topic, "listener told")

    def _step(self, topic: str, text: str) -> None:
        self._steps.debug("%s: (4) %s: %s", self.settings.group, topic, text)
