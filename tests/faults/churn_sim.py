"""Row 9 in virtual time: the same group on simulated hosts, for test runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic
from tests.faults.churn import JOIN, KILL, LEAVE, QUEUES, Call, History, is_shared_out
from tests.faults.feeder_sim import SimFeeder, to_queues_in_turn

_MOST = 8


class SimGroup:
    """The members that live now, and the history of all of them."""

    def __init__(
        self,
        sim: RunningCluster,
        *,
        queues: int = QUEUES,
        longest_call_s: float = 0.2,
        **options: Any,
    ) -> None:
        """`options` go to every member."""
        create_topic(sim, queues)
        self.sim = sim
        self.queues = queues
        self.history = History()
        self.members: dict[str, Member] = {}
        self._longest_call_s = longest_call_s
        self._options = options
        self._rng = sim.rng("churn")
        self._number = 0

    def join(self) -> str:
        """Another member; its name."""
        self._number += 1
        name = f"member-{self._number}"
        handler = self._handler_of(name)
        self.members[name] = Member(self.sim, name=name, handler=handler, **self._options)
        self.history.changes[JOIN] += 1
        return name

    def _handler_of(self, name: str) -> Callable[[Sequence[MessageExt]], Awaitable[None]]:
        async def handle(messages: Sequence[MessageExt]) -> None:
            offsets = tuple(message.queue_offset for message in messages)
            call = Call(name, messages[0].queue_id, offsets, self.sim.now_s)
            self.history.calls.append(call)
            await asyncio.sleep(self._rng.random() * self._longest_call_s)
            call.ended_s = self.sim.now_s

        return handle

    def leave(self, name: str) -> None:
        """Stop a member in order."""
        self.members.pop(name).leave()
        self.history.changes[LEAVE] += 1

    def kill(self, name: str) -> None:
        """kill -9."""
        member = self.members.pop(name)
        self.history.killed[name] = self.progress()
        member.host.kill()
        self.history.changes[KILL] += 1

    def change(self) -> None:
        """Any of the three."""
        count = len(self.members)
        if count < 2 or (count < _MOST and self._rng.random() < 0.5):
            self.join()
            return
        name = self._rng.choice(sorted(self.members))
        if self._rng.random() < 0.4:
            self.kill(name)
        else:
            self.leave(name)

    def progress(self) -> dict[int, int]:
        """What the broker knows."""
        offsets = self.sim.broker.offsets
        return {queue: offsets.get(GROUP, TOPIC, queue) for queue in range(self.queues)}

    def held(self) -> list[list[int]]:
        """Which queues each member holds."""
        return [
            [queue.queue_id for queue in member.consumer.assignment() if queue.topic == TOPIC]
            for member in self.members.values()
        ]

    def settle(self) -> None:
        """Let time pass until every queue has one owner."""
        began_s = self.sim.now_s
        self.sim.until(lambda: is_shared_out(self.held(), self.queues))
        self.history.settled_s = self.sim.now_s - began_s

    def drain(self) -> None:
        """Let everything be handled that ever will be."""
        store = self.sim.broker.store
        stored = {queue: store.max_offset(TOPIC, queue) for queue in range(self.queues)}
        self.history.stored = stored
        before = -1
        while before < len(self.history.calls):
            before = len(self.history.calls)
            self.sim.advance(30)


def churn_in_simulation(seed: int, changes: int, *, queues: int = QUEUES) -> History:
    """A group under load whose members come and go."""
    with SimCluster(seed, limit_s=24 * 3600.0).run() as sim:
        group = SimGroup(sim, queues=queues)
        feeder = SimFeeder(sim, to_queues_in_turn(queues), pause_s=0.01)
        rng = sim.rng("when")
        for _ in range(changes):
            sim.advance(rng.random() * 1.5)
            group.change()
        group.settle()
        feeder.stop()
        group.drain()
        return group.history
