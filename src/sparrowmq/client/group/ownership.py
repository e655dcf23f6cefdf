"""Whether the queues a consumer holds are certainly its own, and finding out when they are not.

sure ── beats unanswered, lock not renewed, another session ──▶ in doubt ─┬─ broker agrees: sure
                                                                          └─ others had it: lost

In doubt nothing is committed, an ordered queue hands out no batch, and a queue consumed
concurrently none either unless its broker is out of reach, where nobody else can get the messages.
"""

import asyncio
from collections.abc import Callable, Iterable

from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.group.assignment import Assignment
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.leases import Leases
from sparrowmq.client.group.offsets import Offsets
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError

LOCK_LIFE_S = 60.0
"""A broker frees a lock that was not renewed for this long."""
FRESH_S = 30.0
"""A member that could not renew for this long stops to consume an ordered queue by itself."""
DOUBT_S = 1.0
"""A broker that could not clear a doubt is asked again after this long."""


class Ownership:
    """Of one consumer that takes leases. Times are those of the client's sessions."""

    def __init__(
        self,
        client: Client,
        leases: Leases,
        offsets: Offsets,
        assignment: Assignment,
        *,
        is_orderly: bool,
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._leases = leases
        self._offsets = offsets
        self._assignment = assignment
        self._is_orderly = is_orderly
        self._wake = wake
        self._doubts = asyncio.Event()
        self._asking: dict[str, asyncio.Lock] = {}
        self._loops: list[asyncio.Task[None]] = []

    # ---- what is known

    def is_sure(self, held: HeldQueue) -> bool:
        """Whether our progress in a queue counts, without asking anybody."""
        sessions = self._client.sessions
        address = self._address(held)
        is_sure = held.session == sessions.name(address) and sessions.is_sure(address)
        if is_sure and self._is_orderly:
            is_sure = sessions.now_s() - held.locked_s <= FRESH_S
        if not is_sure:
            self._doubts.set()
        return is_sure

    def may_work(self, held: HeldQueue) -> bool:
        """Whether a concurrent handler may begin something on it."""
        return self.is_sure(held) or self._client.sessions.is_unreachable(self._address(held))

    async def make_sure(self, held: HeldQueue) -> bool:
        """Whether a queue is certainly ours, asking its broker where that is not known."""
        if not held.is_dropped and not self.is_sure(held):
            await self._ask(held.queue.broker_name)
        return not held.is_dropped and self.is_sure(held)

    def _address(self, held: HeldQueue) -> str | None:
        return self._client.route_table.master(held.queue.broker_name)

    # ---- loops

    async def keep(self) -> None:
        """Renew locks and clear doubts, until `forget`."""
        async with asyncio.TaskGroup() as tasks:
            loops = (self._renew_for_ever(), self._clear_doubts())
            self._loops = [tasks.create_task(loop) for loop in loops]

    def forget(self) -> None:
        """Ownership does not matter any more."""
        for loop in self._loops:
            loop.cancel()

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._client.config.lock_renewal_s)
            await self._renew(list(self._assignment.held.values()))

    async def _clear_doubts(self) -> None:
        """Ask brokers about queues in doubt, as soon as there are any."""
        listeners = self._client.sessions.listeners
        listeners.append(self._doubts.set)
        try:
            while True:
                await self._doubts.wait()
                self._doubts.clear()
                doubted = [one for one in self._assignment.held.values() if not self.is_sure(one)]
                for name in sorted({one.queue.broker_name for one in doubted}):
                    await self._ask(name)
                self._doubts.clear()
                if not all(map(self.is_sure, self._assignment.held.values())):
                    await asyncio.sleep(DOUBT_S)
        finally:
            listeners.remove(self._doubts.set)

    # ---- finding out

    async def _ask(self, broker_name: str) -> None:
        """Those who ask about one broker together share the answer."""
        async with self._asking.setdefault(broker_name, asyncio.Lock()):
            doubted = [
                held
                for held in self._assignment.held.values()
                if held.queue.broker_name == broker_name and not self.is_sure(held)
            ]
            address = self._client.route_table.master(broker_name)
            if doubted and address is not None and await self._client.heartbeats.confirm(address):
                await self._renew([held for held in doubted if not self.is_sure(held)])

    async def _renew(self, queues: Iterable[HeldQueue]) -> None:
        """A broker after the other: what was given up meanwhile must not be locked again."""
        by_broker: dict[str, list[HeldQueue]] = {}
        for held in queues:
            by_broker.setdefault(held.queue.broker_name, []).append(held)
        for mine in by_broker.values():
            await self._renew_at_one([held for held in mine if self._assignment.is_held(held)])

    async def _renew_at_one(self, queues: list[HeldQueue]) -> None:
        locks = await self._leases.take([held.queue for held in queues])
        for held in queues:
            session = locks.sessions.get(held.queue)
            if session is None:
                continue  # its broker could not be asked
            is_same = session == held.session
            is_locked = held.queue in locks.ours
            if await self._is_lost(held, is_same, is_locked, locks.asked_s):
                # Somebody else may have gone on from here: begin again at what is stored.
                self._assignment.lose(held)
                self._wake()
            elif is_locked:
                held.locked_s = locks.asked_s
                held.session = session

    async def _is_lost(
        self, held: HeldQueue, is_same: bool, is_locked: bool, asked_s: float
    ) -> bool:
        """What an answer means; `is_same` when nothing can have happened since we last knew."""
        if self._is_orderly:
            return not (is_same and is_locked) or asked_s - held.locked_s > LOCK_LIFE_S
        if is_same:
            return False  # without its lock too: its old owner did not let go in time
        return not is_locked or await self._has_moved_on(held)

    async def _has_moved_on(self, held: HeldQueue) -> bool:
        """Whether another member consumed further than we did while nobody knew of us."""
        try:
            stored = await self._offsets.load(held.queue, only_looks=True)
        except (ClientError, NetError, ProtocolError):
            return True
        return stored is not None and stored.offset > held.progress
