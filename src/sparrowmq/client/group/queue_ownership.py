"""Which queues a consumer holds, and whether each of them is certainly its own.

sure ── keep-alives unanswered, lock not renewed, another session ──▶ in doubt
  ▲                                                                     │ ask the broker
  └──────────── no other member can have had it ◀───────────────────────┴──▶ others had it: lost

Holding a queue is not the same as owning it. A broker that hears nothing from a member gives its
queues to others, and the member is the last to learn of it: it may have been stopped by SIGSTOP, by
a debugger, or by a network that failed in one direction. Progress that it commits after that point
moves the group past messages, or back over them. So everything that has consequences outside this
process asks here first.

While a queue is in doubt, nothing is committed, and an ordered queue hands out no batch. A
concurrent queue hands out none either, unless its broker is unreachable: then no other member can
get the messages.

When a master leaves the routes and a slave takes over, every queue is in doubt for a moment,
because the session at another broker now counts. The group's progress on the slave decides: a
member that has consumed at least that far keeps a concurrent queue. The same happens when the
master returns.
"""

import asyncio
from collections.abc import Collection, Iterable

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.lock_requests import LockRequests, Locks
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.offsets import Offsets, open_offsets
from sparrowmq.client.group.rebalance_plan import Action, QueueDecision, Reason, RebalanceLog
from sparrowmq.client.group.rebalance_signal import RebalanceSignal
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.locks import LOCK_LIFE_S
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.route import MASTER_ID

FRESH_S = 30.0
"""A member that could not renew its lock for this long stops consuming an ordered queue."""
DOUBT_S = 1.0
"""How long to wait before asking a broker again that could not clear a doubt."""


class QueueOwnership:
    """The queues of one consumer, its progress in them, and its locks on them.

    Times are in the clock of the client's sessions, which other threads share.
    """

    def __init__(self, client: ClientCore, settings: MemberSettings) -> None:
        self._client = client
        self._is_orderly = settings.is_orderly
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.offsets: Offsets = open_offsets(client, settings)
        self.signal = RebalanceSignal()
        self.log = RebalanceLog(settings.group, client.log.getChild("rebalance"), client.clock)
        self.shortened: asyncio.Queue[tuple[HeldQueue, Position]] = asyncio.Queue()
        """Queues that got shorter and have to restart, with the end of the messages we know and the
        epoch of those that follow."""
        has_leases = settings.has_leases and not settings.is_broadcasting
        self._lock_requests = (
            LockRequests(client, settings.group, client.log, only_masters=settings.is_orderly)
            if has_leases
            else None
        )
        self._without_master: set[str] = set()
        """Brokers whose ordered queues wait for a master; already logged."""
        self._late: dict[MessageQueue, HeldQueue] = {}
        """Ordered queues that were lost or reset while their handler ran."""
        self._doubts = asyncio.Event()
        self._asking: dict[str, asyncio.Lock] = {}
        self._loops: list[asyncio.Task[None]] = []

    # ---- what is known

    def is_held(self, held: HeldQueue) -> bool:
        """Whether this is our current hold on the queue: not given up or retaken since."""
        return self.held.get(held.queue) is held

    def is_sure(self, held: HeldQueue) -> bool:
        """Whether our progress in a queue counts, without asking any broker."""
        if self._lock_requests is None:
            return True
        sessions = self._client.sessions
        address = self.address(held.queue)
        is_sure = held.session == sessions.name(address) and sessions.is_sure(address)
        if is_sure and self._is_orderly:
            is_sure = sessions.now_s() - held.locked_s <= FRESH_S
        if not is_sure:
            self._doubts.set()
        return is_sure

    def may_work(self, held: HeldQueue) -> bool:
        """Whether a concurrent handler may start on this queue's messages."""
        return self.is_sure(held) or self._client.sessions.is_unreachable(self.address(held.queue))

    async def make_sure(self, held: HeldQueue) -> bool:
        """Whether a queue is certainly ours; asks its broker if that is in doubt."""
        if self._lock_requests is None:
            return True
        if not held.is_dropped and not self.is_sure(held):
            await self._ask(held.queue.broker_name)
        return not held.is_dropped and self.is_sure(held)

    async def has_lock(self, held: HeldQueue) -> bool:
        """Whether the next batch of an ordered queue may be handed out."""
        return await self.make_sure(held)

    def is_worked_on(self, queue: MessageQueue) -> bool:
        """Whether a handler still has messages of an ordered queue that we lost: if we retook it,
        the queue would have two workers."""
        late = self._late.get(queue)
        if late is None or late.is_running:
            return late is not None
        del self._late[queue]
        return False

    def silent(self, since_s: float) -> set[MessageQueue]:
        """Queues that have not been pulled since `since_s`."""
        return {held.queue for held in self.held.values() if held.last_pull_s < since_s}

    def address(self, queue: MessageQueue) -> str | None:
        """The broker that decides about a queue: its master, or while that is away a slave, which
        knows the members too. Ordered queues then wait, since they lack the master's lock."""
        return self._client.route_table.address(queue.broker_name)

    def silent_master(self, queue: MessageQueue) -> str | None:
        """The address of a queue's master while that answers no keep-alives and another broker of
        its name can be read from, so that no caller waits for its answer. None otherwise."""
        address = self._client.route_table.master(queue.broker_name)
        stands_in = self._client.route_table.has_another(queue.broker_name, MASTER_ID)
        is_silent = stands_in and self._client.sessions.is_unreachable(address)
        return address if is_silent else None

    def waits_for_master(self, held: HeldQueue) -> str:
        """Why an ordered queue waits until its master is back; empty if it does not."""
        name = held.queue.broker_name
        if self._lock_requests is None or not self._is_orderly:
            return ""
        if self._client.route_table.master(name) is not None:
            self._without_master.discard(name)
            return ""
        if name not in self._without_master:
            self._without_master.add(name)
            self._client.log.warning(
                "ordered queues of broker %s wait: its master is away, and only a master locks"
                " queues; start the master again, or start its slave as the master (broker id 0)",
                name,
            )
        return f"the master of broker {name} is away, and only a master locks queues"

    # ---- progress

    def note_progress(self, held: HeldQueue) -> None:
        """Record how far a queue is consumed; it is stored later. Late results of a dropped queue
        do not count."""
        if not held.is_dropped:
            self.offsets.update(held.queue, held.position)

    # ---- locks

    @property
    def has_leases(self) -> bool:
        """Whether queues are locked at their brokers."""
        return self._lock_requests is not None

    async def lock(self, queues: Collection[MessageQueue]) -> Locks | None:
        """Try to lock queues. SparrowMQ's brokers notify us when one that was refused becomes free.
        None if queues are not locked at all."""
        return (
            None
            if self._lock_requests is None
            else await self._lock_requests.take(queues, tells_freed=True)
        )

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Let others have these queues."""
        if self._lock_requests is not None:
            await self._lock_requests.give_back(queues)

    def do_without_leases(self) -> None:
        """Take queues no matter which member holds them, and never doubt what is held."""
        self._lock_requests = None
        for loop in self._loops:
            loop.cancel()

    # ---- losing queues

    def release(self, held: HeldQueue) -> bool:
        """Stop holding a queue, without storing its progress. Returns whether it was held."""
        held.drop()
        if not self.is_held(held):  # meanwhile it was lost, and perhaps retaken
            return False
        del self.held[held.queue]
        self.offsets.forget(held.queue)
        if self._is_orderly and held.is_running:
            self._late[held.queue] = held
            held.when_done = self.signal.ready
        return True

    def lose(self, held: HeldQueue) -> None:
        """Drop a queue: another member has our lock, or may have had it, so that its progress
        counts, not ours."""
        if self.release(held):
            self.log.note(QueueDecision(held.queue, Action.DROP, Reason.LOST))
            self._client.log.warning("lost the lock of %s, its results are dropped", held.queue)

    def shorten(self, held: HeldQueue, end: int, epoch: int | None) -> None:
        """A broker reports that a queue got shorter: messages from offset `end` on are new in this
        epoch."""
        held.leave(asyncio.get_running_loop().time())
        self.shortened.put_nowait((held, Position(end, epoch)))

    # ---- loops

    async def keep(self) -> None:
        """Renew locks and clear doubts, until `do_without_leases`."""
        async with asyncio.TaskGroup() as tasks:
            loops = (self._renew_for_ever(), self._clear_doubts())
            self._loops = [tasks.create_task(loop) for loop in loops]

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._client.config.lock_renewal_s)
            await self._renew(list(self.held.values()))

    async def _clear_doubts(self) -> None:
        """Ask brokers about queues in doubt, as soon as there are any."""
        listeners = self._client.sessions.listeners
        listeners.append(self._doubts.set)
        try:
            while True:
                await self._doubts.wait()
                self._doubts.clear()
                doubted = [held for held in self.held.values() if not self.is_sure(held)]
                for name in sorted({held.queue.broker_name for held in doubted}):
                    await self._ask(name)
                self._doubts.clear()
                if not all(map(self.is_sure, self.held.values())):
                    await asyncio.sleep(DOUBT_S)
        finally:
            listeners.remove(self._doubts.set)

    # ---- asking brokers

    async def _ask(self, broker_name: str) -> None:
        """Ask a broker about our doubted queues. Callers that ask at the same time share the
        answer."""
        async with self._asking.setdefault(broker_name, asyncio.Lock()):
            doubted = [
                held
                for held in self.held.values()
                if held.queue.broker_name == broker_name and not self.is_sure(held)
            ]
            address = self.address(doubted[0].queue) if doubted else None
            if address is not None and await self._client.heartbeats.confirm(address):
                await self._renew([held for held in doubted if not self.is_sure(held)])

    async def _renew(self, queues: Iterable[HeldQueue]) -> None:
        """Renew locks, one broker after the other: queues that were given up meanwhile must not be
        locked again."""
        by_broker: dict[str, list[HeldQueue]] = {}
        for held in queues:
            by_broker.setdefault(held.queue.broker_name, []).append(held)
        for mine in by_broker.values():
            await self._renew_at_one([held for held in mine if self.is_held(held)])

    async def _renew_at_one(self, queues: list[HeldQueue]) -> None:
        if self._lock_requests is None:
            return
        locks = await self._lock_requests.take([held.queue for held in queues])
        for held in queues:
            session = locks.sessions.get(held.queue)
            if session is None:
                continue  # its broker could not be asked
            is_same = session == held.session
            is_locked = held.queue in locks.ours
            if await self.is_lost(held, is_same, is_locked, locks.asked_s):
                # Another member may have continued from here: restart at the stored progress.
                if is_locked and self.is_held(held) and not await self._has_moved_on(held):
                    # None has, and the broker may have lost the last progress that it got from us.
                    await self.offsets.persist([held.queue])
                self.lose(held)
                self.signal.change()
            elif is_locked:
                held.locked_s = locks.asked_s
                held.session = session

    async def is_lost(
        self, held: HeldQueue, is_same: bool, is_locked: bool, asked_s: float
    ) -> bool:
        """Whether a broker's answer means that the queue is lost. `is_same`: our session is still
        the same, so nothing can have happened meanwhile."""
        if self._is_orderly:
            return not (is_same and is_locked) or asked_s - held.locked_s > LOCK_LIFE_S
        if is_same:
            return False  # even without the lock: its old owner did not release it in time
        return not is_locked or await self._has_moved_on(held)

    async def _has_moved_on(self, held: HeldQueue) -> bool:
        """Whether another member got further than we did while no broker knew about us."""
        try:
            stored = await self.offsets.load(held.queue, only_looks=True)
        except (ClientError, NetError, ProtocolError):
            return True
        # A reader that pulls by itself has its progress in `offsets` only.
        known = max(held.progress, self.offsets.get(held.queue))
        return stored is not None and stored.offset > known
