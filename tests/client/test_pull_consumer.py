"""The low-level pull consumer, and callbacks that are scheduled per queue."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparrowmq.client.consuming.pull_consumer import PullConsumer, PullStatus
from sparrowmq.client.consuming.scheduled_pull import PullCallback, ScheduledPull, Turn
from sparrowmq.client.errors import BrokerRefused, NoRoute
from sparrowmq.client.group.consumer_calls import routes
from sparrowmq.client.subscriptions import Sql
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset

T = TypeVar("T")
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


async def pulling(
    sim: RunningCluster, work: Callable[[PullConsumer], Awaitable[T]], **options: Any
) -> T:
    client = sim.client_on("reader", routes)
    await client.start()
    try:
        async with PullConsumer(GROUP, client=client, **options) as consumer:
            return await work(consumer)
    finally:
        await client.stop()


def run(sim: RunningCluster, work: Callable[[PullConsumer], Awaitable[T]], **options: Any) -> T:
    return sim.run(pulling(sim, work, **options), on=sim.host("reader"))


def test_a_pull_tells_what_it_found_and_where_to_go_on() -> None:
    async def read(consumer: PullConsumer) -> None:
        assert await consumer.queues(TOPIC) == [QUEUE]
        found = await consumer.pull(QUEUE, 1, count=2)
        assert found.status is PullStatus.FOUND
        assert [message.body for message in found.messages] == [b"1", b"2"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (3, 0, 5)
        assert (await consumer.pull(QUEUE, 5)).status is PullStatus.NO_NEW_MESSAGE
        beyond = await consumer.pull(QUEUE, 99)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 5)
        for offset, count in ((-1, 1), (0, 0)):
            with pytest.raises(ValueError, match="must be 0"):
                await consumer.pull(QUEUE, offset, count=count)
        with pytest.raises(BrokerRefused, match="does not exist"):
            await consumer.pull(MessageQueue(TOPIC, "broker-a", 7), 0)
        with pytest.raises(NoRoute, match="does not exist"):
            await consumer.queues("nothing")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(5)))
        run(sim, read)


def test_a_pull_chooses_by_tags_or_by_a_condition() -> None:
    async def read(consumer: PullConsumer) -> None:
        tagged = await consumer.pull(QUEUE, 0, choice="paid")
        assert [message.body for message in tagged.messages] == [b"1"]
        chosen = await consumer.pull(QUEUE, 0, choice=Sql("n = 2"))
        assert [message.body for message in chosen.messages] == [b"2"]
        nothing = await consumer.pull(QUEUE, 0, choice="lost")
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 4)
        alike = await consumer.pull(QUEUE, 0, choice="Aa")  # which has the hash of "BB"
        assert (alike.messages, alike.next_offset) == ([], 4)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        for number, tag in enumerate(("open", "paid", "sent", "BB")):
            send(sim, b"%d" % number, TAGS=tag, n=str(number))
        run(sim, read)


def test_a_waiting_pull_is_answered_when_a_message_comes_or_after_20_s() -> None:
    async def read(consumer: PullConsumer) -> list[PullStatus]:
        return [(await consumer.pull(QUEUE, at, waits=True)).status for at in (0, 1)]

    # Our broker lets pulls wait for 15 s unless it is told otherwise
    with SimCluster(seed=1, long_poll_s=30.0).run() as sim:
        create_topic(sim)
        task = sim.host("reader").start(pulling(sim, read))
        sim.advance(5)
        send(sim, b"x")
        began_s = sim.now_s
        assert sim.wait(task) == [PullStatus.FOUND, PullStatus.NO_NEW_MESSAGE]
        assert 20 <= sim.now_s - began_s < 26


def test_progress_is_kept_where_the_application_says() -> None:
    async def read(consumer: PullConsumer) -> None:
        assert await consumer.committed(QUEUE) is None
        for offset in (5, 3):  # also back
            consumer.update_offset(QUEUE, offset)
            await consumer.commit([QUEUE])
            assert await consumer.committed(QUEUE) == offset

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(5)))
        run(sim, read)
        assert stored_offset(sim) == 3


def test_topics_are_balanced_over_the_group_and_silence_is_ignored() -> None:
    async def read(consumer: PullConsumer) -> list[MessageQueue]:
        await asyncio.sleep(5)
        before = dict(consumer.member.held)
        await asyncio.sleep(150)
        assert consumer.member.held == before  # none of them was taken anew
        return consumer.assignment()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        assert len(run(sim, read, topics=[TOPIC])) == 2


def test_a_message_can_be_given_back() -> None:
    async def read(consumer: PullConsumer) -> bytes:
        found = await consumer.pull(QUEUE, 0)
        assert await consumer.give_back(found.messages[0], delay_level=1)
        await asyncio.sleep(3)
        again = await consumer.pull(MessageQueue(f"%RETRY%{GROUP}", "broker-a", 0), 0)
        return again.messages[0].body

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        assert run(sim, read) == b"x"


# ---- scheduled pull


class Scheduled:
    """A scheduled pull on a host of its own."""

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


def test_a_listener_hears_of_the_assignment_beside_the_turns() -> None:
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


def test_a_callback_whose_own_task_was_cancelled_has_its_turn_again() -> None:
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
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        first = Scheduled(sim, "a", {TOPIC: reading(got)})
        sim.advance(3)
        second: Scheduled | None = None
        for number in range(100):
            send(sim, b"%d" % number, queue_id=number % 4)
            sim.advance(0.05)
            if number == 30:
                second = Scheduled(sim, "b", {TOPIC: reading(got)})
        sim.advance(20)
        assert second is not None
        assert len(second.pull.consumer.assignment()) == 2
        first.leave()
        sim.advance(5)
        assert len(second.pull.consumer.assignment()) == 4
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
