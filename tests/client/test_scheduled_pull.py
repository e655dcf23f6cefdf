"""Scheduled pull: callbacks that are called again and again for each queue."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparrowmq.client.consuming.scheduled_pull import PullCallback, ScheduledPull, Turn
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send

T = TypeVar("T")


class Scheduled:
    """A scheduled pull on its own host."""

    def __init__(
        self, sim: RunningCluster, name: str, callbacks: Mapping[str, PullCallback], **options: Any
    ) -> None:
        self.pull: ScheduledPull
        self._sim = sim
        self._leaving = asyncio.Event()
        self.task = sim.host(name).start(self._live(name, callbacks, options))

    async def _live(
        self, name: str, callbacks: Mapping[str, PullCallback], options: dict[str, Any]
    ) -> None:
        client = self._sim.client_on(name, routes)
        await client.start()
        self.pull = ScheduledPull(GROUP, callbacks, client=client, **options)
        async with self.pull:
            await self._leaving.wait()
        await client.stop()

    def leave(self) -> None:
        self._leaving.set()
        self._sim.wait(self.task)


def test_each_queue_has_turns_with_the_delay_its_callback_sets() -> None:
    turns: dict[int, list[float]] = {0: [], 1: []}

    async def note(queue: MessageQueue, turn: Turn) -> None:
        turns[queue.queue_id].append(sim.now_s)
        if queue.queue_id == 1:
            turn.next_delay_s = 2

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        Scheduled(sim, "a", {TOPIC: note})
        sim.advance(10)
        assert turns[0][1] - turns[0][0] == pytest.approx(0.2)
        assert turns[1][1] - turns[1][0] == pytest.approx(2)


def test_a_listener_is_notified_of_the_assignment_during_turns() -> None:
    heard: list[tuple[str, int, int]] = []
    turns: list[MessageQueue] = []

    async def note(queue: MessageQueue, turn: Turn) -> None:
        turns.append(queue)

    def hear(topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        heard.append((topic, len(queues), len(mine)))

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        Scheduled(sim, "a", {TOPIC: note}, listener=hear)
        sim.advance(3)
    assert heard == [(TOPIC, 2, 2)]
    assert {queue.queue_id for queue in turns} == {0, 1}


def test_an_exception_delays_a_queue_by_1_s() -> None:
    turns: list[float] = []

    async def fail(queue: MessageQueue, turn: Turn) -> None:
        turns.append(sim.now_s)
        raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Scheduled(sim, "a", {TOPIC: fail})
        sim.advance(5)
        assert turns[1] - turns[0] == pytest.approx(1)


def test_a_callback_whose_own_task_was_cancelled_is_called_again() -> None:
    turns: list[float] = []

    async def await_something_cancelled(queue: MessageQueue, turn: Turn) -> None:
        turns.append(sim.now_s)
        lost = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Scheduled(sim, "a", {TOPIC: await_something_cancelled})
        sim.advance(5)
        assert turns[1] - turns[0] == pytest.approx(1)


def reading(got: Counter[bytes]) -> PullCallback:
    async def read(queue: MessageQueue, turn: Turn) -> None:
        at = await turn.consumer.committed(queue) or 0
        found = await turn.consumer.pull(queue, at, count=2)
        got.update(message.body for message in found.messages)
        await asyncio.sleep(0.4)
        turn.consumer.update_offset(queue, found.next_offset)
        await turn.consumer.commit([queue])

    return read


def test_members_share_the_queues_and_hand_them_over_between_turns() -> None:
    got: Counter[bytes] = Counter()
    shares: list[int] = []

    def hear(topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        shares.append(len(mine))

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        first = Scheduled(sim, "a", {TOPIC: reading(got)})
        sim.advance(3)
        for number in range(100):
            send(sim, b"%d" % number, queue_id=number % 4)
            sim.advance(0.05)
            if number == 30:
                Scheduled(sim, "b", {TOPIC: reading(got)}, listener=hear)
        sim.advance(20)
        assert shares[-1] == 2
        first.leave()
        sim.advance(5)
        assert shares[-1] == 4
        assert got == Counter(b"%d" % number for number in range(100))


def test_a_broadcasting_member_has_a_task_for_every_queue(tmp_path: Path) -> None:
    seen: Counter[tuple[str, int]] = Counter()

    def noting(name: str) -> PullCallback:
        async def note(queue: MessageQueue, turn: Turn) -> None:
            seen[name, queue.queue_id] += 1

        return note

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        for name in ("a", "b"):
            Scheduled(
                sim,
                name,
                {TOPIC: noting(name)},
                model=MessageModel.BROADCASTING,
                offsets_dir=tmp_path,
            )
        sim.advance(3)
        assert set(seen) == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}


def test_at_most_so_many_callbacks_run_at_once() -> None:
    running: list[int] = [0, 0]

    async def count(queue: MessageQueue, turn: Turn) -> None:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0.1)
        running[0] -= 1

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=8)
        Scheduled(sim, "a", {TOPIC: count}, workers=3)
        sim.advance(5)
        assert running[1] == 3


def test_a_callback_that_is_not_async_is_refused() -> None:
    plain: Any = print
    with pytest.raises(ValueError, match="not an async function"):
        ScheduledPull(GROUP, {TOPIC: plain})
