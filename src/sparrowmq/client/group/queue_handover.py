"""Taking queues and giving them up, so that a planned change delivers nothing twice.

give up: leave (pulls end) ▶ handlers finish ▶ dropped ▶ persisted ▶ forgotten ▶ unlocked
take:    locked ▶ stale offset forgotten ▶ where to start ▶ one pull loop

The order is the point. The giver unlocks last, after its progress is stored; the taker begins only
once it has the lock, and reads the stored progress after that. So the taker starts exactly where
the giver ended, as long as the giver's handlers end in time.

Both sides have a time limit. Handlers of a concurrent queue may keep it for HAND_OVER_S; after that
the queue is given up, and what they are still working on is delivered again. A taker waits for
LEASE_S, which is longer, and then takes the queue without a lock: its owner may be hanging. Ordered
queues have no such limits, because two members working on one queue break the order for good: they
wait until the handler has ended, or until the broker frees the lock of a dead member.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple, TypeAlias

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError, NoNameServer
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.lock_requests import NO_LOCKS
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.offsets import StartOffsets
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rebalance_plan import Action, QueueDecision, Reason
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.message import MessageQueue

NEVER = math.inf
LOCKED_S = 0.5
"""How long to wait before asking again for a queue that another member still holds, unless the
broker reports earlier that it is free."""
MISSED_S = 1.0
"""How long to wait before retrying whatever else kept a round from its target."""
RUNNING_S = 0.5
"""How long a round waits for handlers of queues it gives up; the next round keeps waiting."""
HAND_OVER_S = 10.0
"""How long handlers may keep a concurrent queue that is being given up."""
LEASE_S = 15.0
"""How long a taker waits for a concurrent queue to be released; longer than a hand-over takes."""


class HandoverOutcome(NamedTuple):
    """The outcome of a step."""

    changed: bool
    again_s: float = NEVER
    """In how many seconds to retry what did not succeed."""


PullTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class QueueReader:
    """What a kind of consumer does with the queues it holds. This base class leaves reading to the
    application."""

    def pull_task(self, held: HeldQueue) -> PullTask | None:
        """The loop that pulls a queue for as long as it is held; None if there is none."""
        return None

    def released(self, held: HeldQueue) -> None:
        """A queue's handlers have finished; its progress is stored next."""

    def assignment_changed(self) -> None:
        """Queues were taken or dropped; brokers and listeners have not been notified yet."""


class QueueHandover:
    """Changes which queues a consumer holds, step by step."""

    def __init__(
        self,
        client: ClientCore,
        settings: MemberSettings,
        ownership: QueueOwnership,
        starts: StartOffsets,
        reader: QueueReader,
    ) -> None:
        self._client = client
        self._group = settings.group
        self._is_orderly = settings.is_orderly
        self._ownership = ownership
        self._offsets = ownership.offsets
        self._starts = starts
        self._reader = reader
        self._log = ownership.log
        self._asked_s: dict[MessageQueue, float] = {}
        """Since when we have been asking for queues that others hold."""
        self._locks = NO_LOCKS
        """The brokers' last answers to our lock requests."""
        self._moving: set[HeldQueue] = set()
        """Queues that are restarting at another offset."""

    def leaving(self) -> set[MessageQueue]:
        """Queues that are being given up. No worker takes what was pulled from them: even if this
        member is assigned one again, it has to give it up first and then retake it."""
        going = (held for held in self._ownership.held.values() if held not in self._moving)
        return {held.queue for held in going if held.leaving_s is not None}

    # ---- giving up

    async def give_up(self, reasons: Mapping[MessageQueue, Reason]) -> HandoverOutcome:
        """Give queues up. A queue whose handler is still running stays, to be retried."""
        held_now = self._ownership.held
        leaving = [held_now[queue] for queue in sorted(reasons) if queue in held_now]
        if not leaving:
            return HandoverOutcome(False)
        now_s = asyncio.get_running_loop().time()
        for held in leaving:
            held.leave(now_s)
        await asyncio.gather(*(held.handlers_end(RUNNING_S) for held in leaving))
        ready = [held for held in leaving if self._may_go(held)]
        await asyncio.gather(*(self._drop(held, reasons[held.queue]) for held in ready))
        for held in leaving:
            if held not in ready:
                held.when_done = self._ownership.signal.ready
                why = reasons[held.queue]
                self._wait(held.queue, Reason.HANDLERS_RUN, why, held.leaving_s, HAND_OVER_S)
        return HandoverOutcome(bool(ready), NEVER if len(ready) == len(leaving) else MISSED_S)

    def _may_go(self, held: HeldQueue) -> bool:
        if not held.is_running:
            return True
        if self._is_orderly or held.leaving_s is None:
            return False
        overdue = asyncio.get_running_loop().time() - held.leaving_s >= HAND_OVER_S
        if overdue:
            text = "%s is given up while handlers run: what they work on is delivered again"
            self._client.log.warning(text, held.queue)
        return overdue

    async def _drop(self, held: HeldQueue, reason: Reason) -> None:
        queue = held.queue
        if held.is_dropped:
            return  # a reset or a lost lock dropped it meanwhile, and determines its progress
        if not await self._ownership.make_sure(held):
            self._ownership.lose(held)
            return
        self._reader.released(held)
        held.drop()
        await self._offsets.persist([queue])
        progress = self._offsets.get(queue)
        self._offsets.forget(queue)
        self._ownership.held.pop(queue, None)
        await self._ownership.unlock([queue])
        detail = f"progress {progress} is stored" if progress >= 0 else "it had no progress"
        self._log.note(QueueDecision(queue, Action.DROP, reason, detail))

    async def give_up_all(self, within_s: float, overdue: Callable[[], None]) -> None:
        """The consumer stops: let handlers finish, store progress, unlock. `overdue` ends handlers
        that exceed their time, before their queues are free for others."""
        ownership = self._ownership
        leaving = [ownership.held[queue] for queue in sorted(ownership.held)]
        now_s = asyncio.get_running_loop().time()
        for held in leaving:
            held.leave(now_s)
        await asyncio.gather(*(held.handlers_end(within_s) for held in leaving))
        ours = [held.queue for held in leaving if await ownership.make_sure(held)]
        for held in leaving:
            self._reader.released(held)
            held.drop()
        if any(held.is_running for held in leaving):
            overdue()
            await asyncio.sleep(0)  # a cancelled handler ends in the next turn of the loop
        await self._offsets.persist(ours)
        if unstored := self._offsets.unstored(held.queue for held in leaving):
            self._client.log.warning(
                "the last progress of %d queues is not stored, because their brokers did not"
                " answer: messages that were handled since the one before are delivered again",
                unstored,
            )
        # A queue whose handler is still running is freed when we unregister, or when its lock
        # expires.
        done = [held.queue for held in leaving if not held.is_running]
        await ownership.unlock(done)
        unlocked = f", {len(done)} unlocked" if ownership.has_leases else ""
        self._log.print(f"stop: progress of {len(ours)} queues is stored{unlocked}")
        ownership.held.clear()

    def abandon(self) -> None:
        """Drop every queue at once: its next owner continues from the last stored progress."""
        for held in self._ownership.held.values():
            held.drop()
        self._ownership.held.clear()

    # ---- restarting at another offset

    async def move(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """An operator reset offsets: drop these queues, without their progress, to restart them."""
        held_now = self._ownership.held
        moved = [held_now[queue] for queue in sorted(offsets) if queue in held_now]
        return await self._restart(moved, lambda held: offsets[held.queue], Reason.RESET)

    async def rewind(self, held: HeldQueue, known: Position) -> None:
        """A queue got shorter: the messages we know end at `known.offset`, and different ones
        follow in `known.epoch`. Restart it there, or at the first unhandled message if that is
        earlier."""

        def target(held: HeldQueue) -> int:
            held.epoch = known.epoch  # not earlier: progress past the end counts lost messages
            return min(held.progress, known.offset)

        if not self._ownership.is_held(held) or held in self._moving:
            return
        if not await self._ownership.make_sure(held):
            self._ownership.lose(held)
            return
        text = "%s got shorter: messages from offset %d on are new"
        self._client.log.warning(text, held.queue, known.offset)
        await self._restart([held], target, Reason.SHORTENED)

    async def _restart(
        self, moved: Collection[HeldQueue], target: Callable[[HeldQueue], int], reason: Reason
    ) -> list[MessageQueue]:
        """Drop queues, which are retaken at `target`; that is evaluated when handlers are done."""
        now_s = asyncio.get_running_loop().time()
        for held in moved:
            held.leave(now_s)
        self._moving.update(moved)
        try:
            return await self._persist_moved(moved, target)
        finally:
            # Even if the connection closes, which cancels this: progress would undo the reset.
            for held in moved:
                if self._ownership.release(held):
                    self._log.note(QueueDecision(held.queue, Action.DROP, reason))
            self._moving.difference_update(moved)

    async def _persist_moved(
        self, queues: Collection[HeldQueue], target: Callable[[HeldQueue], int]
    ) -> list[MessageQueue]:
        await asyncio.gather(*(held.handlers_end(HAND_OVER_S) for held in queues))
        moved = [held.queue for held in queues if not held.is_dropped]
        for held in queues:
            if not held.is_dropped:
                offset = target(held)
                held.drop()
                self._offsets.update(held.queue, Position(offset, held.epoch), may_lower=True)
        await self._offsets.persist(moved)
        return moved

    # ---- taking

    async def take(self, reasons: Mapping[MessageQueue, Reason]) -> HandoverOutcome:
        """Take queues and start them. To be retried: queues that are not free, those whose start
        offset is unknown, and those that one of our handlers is still working on."""
        wanted = sorted(queue for queue in reasons if queue not in self._ownership.held)
        busy = [queue for queue in wanted if self._ownership.is_worked_on(queue)]
        for queue in busy:
            self._wait(queue, Reason.OWN_HANDLER_RUNS)
        free = await self._lock([queue for queue in wanted if queue not in busy])
        started = await asyncio.gather(*(self._start(queue, reasons[queue]) for queue in free))
        again_s = LOCKED_S if len(free) < len(wanted) else NEVER
        if not all(started):
            again_s = min(again_s, MISSED_S)
        return HandoverOutcome(any(started), again_s)

    async def _lock(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """The subset of these queues that can be started."""
        locks = await self._ownership.lock(queues) if queues else None
        if locks is None:
            return queues
        self._locks = locks
        free = [queue for queue in queues if queue in locks.ours or self._has_waited(queue)]
        for queue in queues:
            if queue in free:
                self._asked_s.pop(queue, None)
            else:
                reason = Reason.LOCKED if queue in locks.others else Reason.LOCK_UNKNOWN
                self._wait(queue, reason, "", self._asked_s.get(queue), LEASE_S)
        return free

    def _has_waited(self, queue: MessageQueue) -> bool:
        """Whether we have waited long enough for the owner of a concurrent queue."""
        now_s = asyncio.get_running_loop().time()
        if self._is_orderly or now_s - self._asked_s.setdefault(queue, now_s) < LEASE_S:
            return False
        self._client.log.warning("%s was not released in time, taking it anyway", queue)
        return True

    async def _start(self, queue: MessageQueue, reason: Reason) -> bool:
        """Start a queue. False if its offset is unknown: a queue is never read from 0 by
        accident."""
        ownership = self._ownership
        self._offsets.forget(queue)
        try:
            stored = await self._offsets.load(queue)
            start = await self._starts.of(queue, stored)
        except (ClientError, NetError, ProtocolError) as error:
            self._wait(queue, Reason.START_UNKNOWN, str(error))
            self._client.log.debug("%s not started: its offset is unknown: %s", queue, error)
            if not isinstance(error, NoNameServer):  # logged for each broker, not for each queue
                self._client.outages.failed(f"broker {queue.broker_name}", error)
            return False
        if queue in ownership.held:
            return True
        now_s = asyncio.get_running_loop().time()
        held = HeldQueue(queue, start.offset, now_s, start.epoch)
        sessions = self._client.sessions
        here = sessions.name(ownership.address(queue))
        held.session = self._locks.sessions.get(queue, here)
        held.locked_s = self._locks.asked_s if queue in self._locks.ours else sessions.now_s()
        ownership.held[queue] = held
        detail = f"starts at {start.offset}"
        self._log.note(QueueDecision(queue, Action.TAKE, reason, detail))
        pull = self._reader.pull_task(held)
        if pull is not None:
            held.task = self._client.keep(pull, f"pull {queue}")
        return True

    def _wait(
        self,
        queue: MessageQueue,
        reason: Reason,
        detail: str = "",
        since_s: float | None = None,
        within_s: float = NEVER,
    ) -> None:
        """Record that a queue cannot be taken or given up now. Ordered queues wait without a
        limit."""
        until_ms = None
        if since_s is not None and not self._is_orderly:
            left_s = since_s + within_s - asyncio.get_running_loop().time()
            until_ms = self._client.clock() + round(left_s * 1000)
            limit = f"at most {left_s:.1f} s more"
            detail = f"{detail}, {limit}" if detail else limit
        self._log.note(QueueDecision(queue, Action.WAIT, reason, detail, until_ms))
