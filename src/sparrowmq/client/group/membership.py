"""A consumer's place in its group, from joining to leaving, and the loops that keep it.

join:  routes ▶ heartbeat to all brokers ▶ first rebalance       (brokers notify the other members)
leave: handlers finish ▶ persist ▶ unlock ▶ unregister           (and again)

`QueueOwnership`   which queues are held, and whether they are certainly ours
`QueueHandover`    takes queues and gives them up
`Rebalance`        decides which
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError, QueueLost
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.offsets import StartOffsets
from sparrowmq.client.group.queue_handover import NEVER, QueueHandover, QueueReader
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rate_limit import RateLimit
from sparrowmq.client.group.rebalance import ManualAssignment, Rebalance
from sparrowmq.client.sessions import BrokerSilent
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import retry_topic


class Membership:
    """Lives from `join` to `leave`."""

    def __init__(
        self,
        client: ClientCore,
        settings: MemberSettings,
        subscriptions: Subscriptions,
        ownership: QueueOwnership,
        reader: QueueReader,
        rate_limit: RateLimit,
    ) -> None:
        self.client = client
        self.settings = settings
        self.subscriptions = subscriptions
        self.ownership = ownership
        self.started_ms = client.clock()
        self.workers = 0
        """How many handler calls run at once; reported to operators."""
        self.offsets = ownership.offsets
        starts = StartOffsets(client, settings, self.started_ms)
        self.handover = QueueHandover(client, settings, ownership, starts, reader)
        self.rebalance = Rebalance(
            client, settings, subscriptions, ownership, self.handover, reader, rate_limit
        )
        self._signal = ownership.signal
        self._loops: list[asyncio.Task[None]] = []
        self._is_leaving = False

    @property
    def held(self) -> dict[MessageQueue, HeldQueue]:
        """The queues that this member holds."""
        return self.ownership.held

    def consumer_data(self) -> ConsumerData:
        """This member's part of the heartbeats."""
        return ConsumerData(
            group_name=self.settings.group,
            consume_type=self.settings.consume_type,
            message_model=self.settings.model,
            consume_from_where=self.settings.from_where,
            subscription_data_set=self.subscriptions.all(),
        )

    # ---- joining and leaving

    async def join(self) -> None:
        """Announce the member and start rebalancing. Its consumer is in `client.consumers`."""
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
        loops = {
            "rebalance": self.rebalance.run,
            "progress": self._persist_offsets,
            "shortened queues": self._rewind_shortened,
        }
        if self.ownership.has_leases:
            loops["ownership"] = self.ownership.keep
        self._loops = [
            client.keep(run, f"{what} of group {settings.group}", may_end=self._may_loops_end)
            for what, run in loops.items()
        ]

    async def leave(self, within_s: float, overdue: Callable[[], None] = lambda: None) -> None:
        """Let handlers finish within a deadline (`overdue` ends the others), store progress,
        unlock, unregister."""
        try:
            await self._give_up(within_s, overdue)
            self.client.consumers.pop(self.settings.group, None)
            await self.client.heartbeats.unregister(consumer_group=self.settings.group)
        except asyncio.CancelledError:
            # No caller waits for the rest: release what is held, and unregister anyway.
            self.handover.abandon()
            self.client.consumers.pop(self.settings.group, None)
            self.client.heartbeats.unregister_later(self.settings.group)
            raise
        finally:
            self.offsets.close()
        self.ownership.log.print("stop: unregistered")

    async def _give_up(self, within_s: float, overdue: Callable[[], None]) -> None:
        self._is_leaving = True
        for task in self._loops:
            task.cancel()
        with contextlib.suppress(ValueError):
            self.client.route_table.changed.remove(self._route_changed)
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        await self.handover.give_up_all(within_s, overdue)

    def _may_loops_end(self) -> bool:
        """Whether something other than a listener or a strategy may have cancelled the loops."""
        return self._is_leaving or self.client.is_ending

    async def until_left(self) -> None:
        """Return when its loops have ended: `leave` was called, or the client is ending."""
        if self._loops:  # not gathered: a caller that is cancelled must not take them with it
            await asyncio.wait(self._loops)

    # ---- rebalance

    def wake(self) -> None:
        """Rebalance soon."""
        self._signal.change()

    def wake_at_once(self) -> None:
        """Rebalance now: a queue that had to stay where it was can be given up or taken."""
        self._signal.ready()

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.wake()

    async def assign_manually(
        self, queues: Collection[MessageQueue], look_up: Callable[[], Awaitable[None]]
    ) -> None:
        """Hold exactly these queues from now on, without waiting for other members that hold them.
        `look_up` is called before anything changes, and may raise."""
        self.ownership.do_without_leases()
        if self.rebalance.manual is None:
            self.rebalance.manual = ManualAssignment(self.ownership, self.handover)
        if await self.rebalance.manual.choose(queues, look_up) < NEVER:
            self.wake()

    # ---- progress

    async def store(self, queues: Iterable[MessageQueue]) -> None:
        """Store progress now. Raises QueueLost for a queue that another member got meanwhile, and
        NoRoute, BrokerRefused, NetError or OSError if the progress cannot be stored: at once if the
        master is silent, so that a reader of its slave is not held up."""
        chosen = [(queue, self.held.get(queue)) for queue in queues]
        for queue, held in chosen:  # asked for each: storing another's may have taken long
            if not self.settings.is_broadcasting:
                silent = self.ownership.silent_master(queue)
                if silent is not None:
                    raise BrokerSilent(silent)
            if held is not None and not await self.ownership.make_sure(held) and held.is_dropped:
                raise QueueLost(queue)
            await self.offsets.persist([queue], raises=True)

    async def _persist_offsets(self) -> None:
        while True:
            await asyncio.sleep(self.settings.persist_s)
            for held in tuple(self.held.values()):
                if self.ownership.is_sure(held):  # asked for each: storing one may take long
                    await self.offsets.persist([held.queue])

    async def move(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at offsets that an operator chose. Raises ValueError in a broadcasting group."""
        if self.settings.is_broadcasting:
            raise ValueError(
                f"group {self.settings.group} is BROADCASTING: each member keeps its own progress,"
                " so it cannot be reset from outside; change the file of offsets instead"
            )
        try:
            moved = await self.handover.move(offsets)
            self.client.log.info("offsets of %s reset: %s", self.settings.group, moved)
        finally:
            self.wake()

    async def _rewind_shortened(self) -> None:
        """Rewind each shortened queue in its own task: a queue waits for its own handlers, not for
        other queues."""
        while True:
            held, known = await self.ownership.shortened.get()
            name = f"rewind {held.queue}"
            self.client.tasks.create_task(self._rewind(held, known), name=name)

    async def _rewind(self, held: HeldQueue, known: Position) -> None:
        try:
            await self.handover.rewind(held, known)
        finally:
            self.wake_at_once()
