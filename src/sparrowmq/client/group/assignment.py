"""Taking queues and giving them up, so that a planned change delivers nothing twice.

give up: leave (pulls end) ▶ handlers finish ▶ dropped ▶ persisted ▶ forgotten ▶ unlocked
take:    locked ▶ stale offset forgotten ▶ where to start ▶ one pull loop
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.leases import NO_LOCKS, Leases
from sparrowmq.client.group.offsets import Offsets
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.message import MessageQueue

NEVER = math.inf


class Outcome(NamedTuple):
    """What became of a step."""

    changed: bool
    again_s: float = NEVER
    """When to try again what did not succeed."""


LOCKED_S = 0.5
"""A queue that another member still holds is asked for again after this long, where the broker
does not tell that it is free."""
MISSED_S = 1.0
"""Whatever else kept a round from its target is tried again after this long."""
RUNNING_S = 0.5
"""How long a round waits for handlers of queues it gives up; the next one goes on waiting."""
HAND_OVER_S = 10.0
"""How long handlers may keep a queue that is consumed concurrently. An ordered one stays."""
LEASE_S = 15.0
"""How long a taker waits for a release; longer than a hand-over takes. Ordered: for ever."""


class Assignment:
    """The queues one consumer holds."""

    def __init__(
        self,
        client: Client,
        group: str,
        offsets: Offsets,
        leases: Leases | None,
        *,
        is_orderly: bool,
        start_at: Callable[[MessageQueue, Position | None], Awaitable[Position]],
        begin: Callable[[HeldQueue], Coroutine[Any, Any, None]] | None,
        released: Callable[[HeldQueue], None],
        make_sure: Callable[[HeldQueue], Awaitable[bool]],
        may_go: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        """`begin` is the pull loop of a queue. `released` is told when a queue's handlers are done,
        just before its progress is persisted. A queue that is not certainly ours (`make_sure`)
        is given up without that: somebody else may have gone on. `may_go` is told when a queue that
        stayed because of its handlers need not stay any more."""
        self._client = client
        self._group = group
        self._offsets = offsets
        self._leases = leases
        self._is_orderly = is_orderly
        self._start_at = start_at
        self._begin = begin
        self._released = released
        self._make_sure = make_sure
        self._may_go_now = may_go
        self._log = log
        self._steps = log.getChild("rebalance")
        self._asked_s: dict[MessageQueue, float] = {}
        self._locks = NO_LOCKS
        """What brokers answered last."""
        self.held: dict[MessageQueue, HeldQueue] = {}
        self._moving: set[HeldQueue] = set()
        self._late: dict[MessageQueue, HeldQueue] = {}
        """Ordered queues that went while their handler ran; its end is waited for."""

    def silent(self, since_s: float) -> set[MessageQueue]:
        """Queues that should be pulled and were not since then."""
        return {held.queue for held in self.held.values() if held.last_pull_s < since_s}

    def leaving(self) -> set[MessageQueue]:
        """Queues on their way out. Nobody works on what was pulled of them: also who gets them back
        has to give them up and take them anew."""
        going = (one for one in self.held.values() if one not in self._moving)
        return {held.queue for held in going if held.leaving_s is not None}

    def do_without_leases(self) -> None:
        """Take queues whoever holds them."""
        self._leases = None

    # ---- giving up

    async def give_up(
        self, queues: Collection[MessageQueue], why: str, *, number: int = 1
    ) -> Outcome:
        """Give queues up, as step `number`. One whose handler runs stays, and is tried again."""
        if not queues:
            return Outcome(False)
        leaving = [self.held[queue] for queue in sorted(queues) if queue in self.held]
        now_s = asyncio.get_running_loop().time()
        for held in leaving:
            self._step(number, held.queue, why)
            held.leave(now_s)
        await asyncio.gather(*(self._wait_for_handlers(held, RUNNING_S) for held in leaving))
        ready = [held for held in leaving if self._may_go(held)]
        await asyncio.gather(*(self._drop(held, number) for held in ready))
        for held in leaving:
            if held not in ready:
                held.when_done = self._may_go_now
                self._step(number, held.queue, "its handler still runs: stays until the next round")
        return Outcome(bool(ready), NEVER if len(ready) == len(leaving) else MISSED_S)

    async def _wait_for_handlers(self, held: HeldQueue, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                if self._is_orderly:
                    async with held.consume_lock:
                        pass  # whoever comes next sees that the queue leaves
                else:
                    await held.idle.wait()

    def _is_running(self, held: HeldQueue) -> bool:
        return held.consume_lock.locked() if self._is_orderly else not held.idle.is_set()

    def _may_go(self, held: HeldQueue) -> bool:
        if not self._is_running(held):
            return True
        if self._is_orderly or held.leaving_s is None:
            return False
        overdue = asyncio.get_running_loop().time() - held.leaving_s >= HAND_OVER_S
        if overdue:
            text = "%s is given up while handlers run: what they do is delivered again"
            self._log.warning(text, held.queue)
        return overdue

    async def _drop(self, held: HeldQueue, number: int) -> None:
        queue = held.queue
        if held.is_dropped:
            return  # by a reset or a lost lock meanwhile, which say what its progress is
        if not await self._make_sure(held):
            self.lose(held)
            return
        self._released(held)
        held.drop()
        self._step(number, queue, "dropped")
        await self._offsets.persist([queue])
        self._step(number, queue, f"persisted at {self._offsets.get(queue)}")
        self._offsets.forget(queue)
        self._step(number, queue, "forgotten")
        self.held.pop(queue, None)
        if self._leases is not None:
            await self._leases.give_back([queue])
            self._step(number, queue, "unlocked")

    async def give_up_all(self, within_s: float, overdue: Callable[[], None]) -> None:
        """The consumer stops: let handlers finish, persist, unlock. Handlers that run after their
        time are ended by `overdue`, before their queues are free for others."""
        leaving = [self.held[queue] for queue in sorted(self.held)]
        now_s = asyncio.get_running_loop().time()
        for held in leaving:
            held.leave(now_s)
        await asyncio.gather(*(self._wait_for_handlers(held, within_s) for held in leaving))
        ours = [held.queue for held in leaving if await self._make_sure(held)]
        for held in leaving:
            self._released(held)
            held.drop()
        if any(map(self._is_running, leaving)):
            overdue()
            await asyncio.sleep(0)  # a cancelled handler ends in the next turn of the loop
        await self._offsets.persist(ours)
        self._steps.debug("%s: stop: %d queues persisted", self._group, len(ours))
        if self._leases is not None:
            # An ordered queue whose handler still runs is freed by our goodbye or by time.
            done = [held.queue for held in leaving if not self._is_running(held)]
            await self._leases.give_back(done)
            self._steps.debug("%s: stop: %d queues unlocked", self._group, len(done))
        self.held.clear()

    def abandon(self) -> None:
        """Let go of everything at once: its next owner goes on where progress was last stored."""
        for held in self.held.values():
            held.drop()
        self.held.clear()

    async def move(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """An operator reset offsets: drop these queues, without their progress, to start anew."""
        moved = [self.held[queue] for queue in sorted(offsets) if queue in self.held]
        return await self._restart(moved, lambda held: offsets[held.queue])

    async def rewind(self, held: HeldQueue, end: int, epoch: int | None) -> None:
        """A queue got shorter: its messages as we know them end at `end`, others follow in `epoch`.
        Start it anew there, or at what is pulled and not handled yet."""

        def target(held: HeldQueue) -> int:
            held.epoch = epoch  # not before: progress past the end counts messages that are gone
            return min(held.progress, end)

        if not self.is_held(held) or held in self._moving:
            return
        if not await self._make_sure(held):
            self.lose(held)
            return
        self._log.warning("%s got shorter: messages from offset %d on are new", held.queue, end)
        await self._restart([held], target)

    async def _restart(
        self, moved: Collection[HeldQueue], target: Callable[[HeldQueue], int]
    ) -> list[MessageQueue]:
        """Drop queues; they are taken anew at the target, asked for when handlers are done."""
        now_s = asyncio.get_running_loop().time()
        for held in moved:
            held.leave(now_s)
        self._moving.update(moved)
        try:
            return await self._persist_moved(moved, target)
        finally:
            # Also when its connection ends, which cancels this: progress would undo the reset.
            for held in moved:
                held.drop()
                if self.is_held(held):  # else it was lost, and perhaps taken anew, meanwhile
                    self._offsets.forget(held.queue)
                    del self.held[held.queue]
                    self._note_late(held)
            self._moving.difference_update(moved)

    async def _persist_moved(
        self, queues: Collection[HeldQueue], target: Callable[[HeldQueue], int]
    ) -> list[MessageQueue]:
        await asyncio.gather(*(self._wait_for_handlers(held, HAND_OVER_S) for held in queues))
        moved = [held.queue for held in queues if not held.is_dropped]
        for held in queues:
            if not held.is_dropped:
                offset = target(held)
                held.drop()
                self._offsets.update(held.queue, offset, epoch=held.epoch, may_lower=True)
        await self._offsets.persist(moved)
        return moved

    def lose(self, held: HeldQueue) -> None:
        """Another member has our lock, or may have had it: its progress counts, not ours."""
        held.drop()
        if self.is_held(held):
            del self.held[held.queue]
            self._offsets.forget(held.queue)
            self._note_late(held)
            self._log.warning("lost the lock of %s, its results are dropped", held.queue)

    def _note_late(self, held: HeldQueue) -> None:
        """Taken anew while its handler runs, an ordered queue would have two workers."""
        if self._is_orderly and self._is_running(held):
            self._late[held.queue] = held
            held.when_done = self._may_go_now

    def _is_late(self, queue: MessageQueue) -> bool:
        late = self._late.get(queue)
        if late is None or self._is_running(late):
            return late is not None
        del self._late[queue]
        return False

    def is_held(self, held: HeldQueue) -> bool:
        """Whether this is what we hold of its queue: not given up, nor taken anew since."""
        return self.held.get(held.queue) is held

    # ---- taking

    async def take(self, queues: Collection[MessageQueue]) -> Outcome:
        """Start queues. What is not free, or whose start is not known, is tried again; so is what
        a handler of ours still works on."""
        wanted = sorted(queue for queue in queues if queue not in self.held)
        free = await self._lock([queue for queue in wanted if not self._is_late(queue)])
        started = await asyncio.gather(*(self._start(queue) for queue in free))
        again_s = LOCKED_S if len(free) < len(wanted) else NEVER
        if not all(started):
            again_s = min(again_s, MISSED_S)
        return Outcome(any(started), again_s)

    async def _lock(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        if self._leases is None or not queues:
            return queues
        self._locks = locks = await self._leases.take(queues, tells_freed=True)
        free = [queue for queue in queues if queue in locks.ours or self._has_waited(queue)]
        for queue in queues:
            if queue in free:
                self._asked_s.pop(queue, None)
            self._step(3, queue, "locked" if queue in locks.ours else "not locked")
        return free

    def _has_waited(self, queue: MessageQueue) -> bool:
        """Whether its owner had its time. Only a guard of exactly one delivery: never ordered."""
        now_s = asyncio.get_running_loop().time()
        if self._is_orderly or now_s - self._asked_s.setdefault(queue, now_s) < LEASE_S:
            return False
        self._log.warning("%s was not released in time, taking it all the same", queue)
        return True

    async def _start(self, queue: MessageQueue) -> bool:
        """False when its offset cannot be known now: it is never read from 0 by accident."""
        self._offsets.forget(queue)
        self._step(3, queue, "stale offset forgotten")
        try:
            stored = await self._offsets.load(queue)
            start = await self._start_at(queue, stored)
        except (ClientError, NetError, ProtocolError) as error:
            self._step(3, queue, "not started: its offset cannot be read")
            self._log.warning("%s not started: its offset is unknown: %s", queue, error)
            return False
        if queue in self.held:
            return True
        now_s = asyncio.get_running_loop().time()
        held = HeldQueue(queue, start.offset, now_s, start.epoch)
        sessions = self._client.sessions
        here = sessions.name(self._client.route_table.master(queue.broker_name))
        held.session = self._locks.sessions.get(queue, here)
        held.locked_s = self._locks.asked_s if queue in self._locks.ours else sessions.now_s()
        self.held[queue] = held
        self._step(3, queue, f"starts at {start.offset}")
        if self._begin is not None:
            held.task = self._client.keep(partial(self._begin, held), f"pull {queue}")
            self._step(3, queue, "its pull loop begins")
        return True

    def _step(self, number: int, queue: MessageQueue, text: str) -> None:
        name = f"{queue.topic} {queue.broker_name} {queue.queue_id}"
        self._steps.debug("%s: (%d) %s: %s", self._group, number, name, text)
