"""Row 11 with real processes: kill -9, and SIGSTOP for longer than a lock lives."""

import asyncio
import time
from random import Random

from sparrowmq.protocol.message import Message
from tests.faults.churn import JOIN, KILL, LEAVE
from tests.faults.churn_group import MemberProcess, ProcessGroup
from tests.faults.churn_member import TOPIC, MemberOptions
from tests.faults.churn_processes import STEADY, Servers, drain, servers
from tests.faults.order_under_churn import FROZEN_S, KILLED_S, Fault, OrderHistory
from tests.patience import PATIENCE_S

QUEUES = 16
_BATCH = 50
_MEMBERS = 4


class OrderlyChurn:
    """What happens to an ordered group, one thing after the other."""

    def __init__(self, running: Servers, group: ProcessGroup, rng: Random) -> None:
        self.history = OrderHistory()
        self._running = running
        self._group = group
        self._rng = rng

    async def calm(self) -> None:
        """Enough members, each queue has its owner, and every member works."""
        while len(self._group.live) < _MEMBERS:
            self._group.join()
            self.history.changes[JOIN] += 1
        await self._group.until(self._group.is_settled, PATIENCE_S)

    async def kill(self, *, is_measured: bool = False) -> None:
        """kill -9 one of them; measured: until its queues move again."""
        member = self._any()
        progress = await self._running.progress()
        held = tuple(member.held)
        del self._group.live[member.name]
        at_s = time.monotonic()
        fault = Fault(member.name, at_s, float("inf"), held, progress, is_measured)
        self.history.faults.append(fault)
        self.history.changes[KILL] += 1
        await member.kill()
        if is_measured:
            await self._until_taken_over(fault, PATIENCE_S)

    async def leave(self) -> None:
        """One of them goes in order."""
        member = self._any()
        del self._group.live[member.name]
        self.history.changes[LEAVE] += 1
        await member.leave()

    async def freeze(self, more_s: float) -> None:
        """SIGSTOP one until all its queues have moved and some time more, then resume it."""
        member = self._any()
        progress = await self._running.progress()
        frozen = Fault(member.name, time.monotonic(), 0.0, tuple(member.held), progress, True)
        member.stop()
        try:
            await self._until_taken_over(frozen, FROZEN_S + PATIENCE_S)
            await asyncio.sleep(more_s)
        finally:
            member.go_on()
            until_s = time.monotonic()
            self.history.faults.append(
                Fault(frozen.member, frozen.at_s, until_s, frozen.held, progress, True)
            )
        self.history.changes["freeze"] += 1

    async def change(self) -> None:
        """Any of the usual."""
        live = self._group.live
        if len(live) < 2 or (len(live) < 2 * _MEMBERS and self._rng.random() < 0.5):
            self._group.join()
            self.history.changes[JOIN] += 1
        elif self._rng.random() < 0.5:
            await self.kill()
        else:
            await self.leave()

    def _any(self) -> MemberProcess:
        return self._group.live[self._rng.choice(sorted(self._group.live))]

    async def _until_taken_over(self, fault: Fault, within_s: float) -> None:
        def is_taken_over() -> bool:
            taken = {
                call.queue_id
                for member in self._group.live.values()
                if member.name != fault.member
                for call in reversed(member.calls)
                if call.began_s > fault.at_s
            }
            return set(fault.held) <= taken

        await self._group.until(is_taken_over, within_s)


class Feeder:
    """Sends batches: at a pace first, as fast as it can when `hurry` is set."""

    def __init__(self, running: Servers, total: int) -> None:
        self.hurry = asyncio.Event()
        self._running = running
        self._total = total

    async def feed(self) -> None:
        """Send everything, and keep the pace until `hurry` is set."""
        sent = 0
        while sent < self._total or not self.hurry.is_set():
            for _ in range(2):
                messages = [Message(TOPIC, b"%d" % number) for number in range(sent, sent + _BATCH)]
                await self._running.producer.send_batch(messages)
                sent += _BATCH
            if not self.hurry.is_set():
                await asyncio.sleep(0.03)


async def _order(
    seed: int, messages: int, changes: int, freezes: int, planted: str
) -> OrderHistory:
    async with servers(QUEUES, *(() if freezes else STEADY)) as running:
        options = MemberOptions(
            name_server=running.name_server,
            orderly=True,
            batch=_BATCH,
            longest_call_s=0.01,
            planted=planted,
        )
        group = ProcessGroup(options, QUEUES)
        churn = OrderlyChurn(running, group, Random(seed))
        feeder = Feeder(running, messages)
        try:
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(feeder.feed())
                await _happen(churn, Random(seed), changes, freezes)
                feeder.hurry.set()
                await feeding
                churn.history.stored = await running.stored()
                await drain(group, churn.history)
        finally:
            await group.end()
        group.into(churn.history)
        return churn.history


async def _happen(churn: OrderlyChurn, rng: Random, changes: int, freezes: int) -> None:
    await churn.calm()
    for _ in range(changes):
        await asyncio.sleep(rng.random())
        await churn.change()
    for number in range(freezes):
        await churn.calm()
        await churn.kill(is_measured=True)
        await churn.calm()
        # Once for a moment, once for longer than any lock lives.
        await churn.freeze(more_s=FROZEN_S if number % 2 else KILLED_S)
        await churn.calm()


def order_in_processes(
    seed: int, messages: int, changes: int, freezes: int, planted: str = ""
) -> OrderHistory:
    """Members come, go, crash and freeze while at least so many messages flow."""
    return asyncio.run(_order(seed, messages, changes, freezes, planted))
