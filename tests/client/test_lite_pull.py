"""The lite pull consumer: poll, seek, commit, pause, assign, share with a group."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.group.consumer_calls import routes
from sparrowmq.client.subscriptions import Only, Sql
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset

T = TypeVar("T")
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
OTHER = MessageQueue(TOPIC, "broker-a", 1)
Work = Callable[[LitePullConsumer], Awaitable[T]]


async def using(sim: RunningCluster, name: str, work: Work[T], **options: Any) -> T:
    client = sim.client_on(name, routes)
    await client.start()
    options.setdefault("subscriptions", {TOPIC: "*"})
    options.setdefault("from_where", ConsumeFromWhere.FIRST_OFFSET)
    try:
        async with LitePullConsumer(GROUP, client=client, **options) as consumer:
            return await work(consumer)
    finally:
        await client.stop()


def run(sim: RunningCluster, work: Work[T], *, name: str = "reader", **options: Any) -> T:
    return sim.run(using(sim, name, work, **options), on=sim.host(name))


def bodies(messages: Sequence[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def with_25_messages(sim: RunningCluster, queues: int = 1) -> None:
    create_topic(sim, queues)
    send(sim, *numbers(0, 25))


def test_poll_returns_batches_in_order_and_nothing_when_nothing_comes() -> None:
    async def read(consumer: LitePullConsumer) -> list[list[bytes]]:
        return [bodies(await consumer.poll()) for _ in range(4)]

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read) == [numbers(0, 10), numbers(10, 20), numbers(20, 25), []]


def test_a_poll_that_waits_gets_what_arrives() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        return bodies(await consumer.poll(timeout_s=60))

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        task = sim.host("reader").start(using(sim, "reader", read))
        sim.advance(10)
        began_s = sim.now_s
        send(sim, b"x")
        assert sim.wait(task) == [b"x"]
        assert sim.now_s - began_s < 1


def test_what_was_polled_is_committed_and_a_next_reader_goes_on_there() -> None:
    async def one_batch(consumer: LitePullConsumer) -> list[bytes]:
        return bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, one_batch) == numbers(0, 10)
        assert stored_offset(sim) == 10
        assert run(sim, one_batch) == numbers(10, 20)


def test_a_batch_whose_processing_raised_comes_again() -> None:
    async def fail(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        await consumer.poll()
        raise ValueError("while processing the second batch")

    async def one_batch(consumer: LitePullConsumer) -> list[bytes]:
        return bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        with pytest.raises(ValueError, match="second batch"):
            run(sim, fail)
        assert run(sim, one_batch) == numbers(10, 20)


def test_polled_messages_are_committed_every_5_s() -> None:
    async def read_slowly(consumer: LitePullConsumer) -> int | None:
        await consumer.poll()
        await asyncio.sleep(6)
        before = await consumer.committed(QUEUE)
        assert before is None  # nothing says yet that the batch is consumed
        await consumer.poll()
        await asyncio.sleep(6)
        return await consumer.committed(QUEUE)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read_slowly) == 10


def test_without_auto_commit_only_commit_stores_progress() -> None:
    async def read(consumer: LitePullConsumer) -> list[int | None]:
        await consumer.poll()
        await asyncio.sleep(11)
        found = [await consumer.committed(QUEUE)]
        await consumer.commit()
        found.append(await consumer.committed(QUEUE))
        await consumer.commit({QUEUE: 3})
        found.append(await consumer.committed(QUEUE))
        await consumer.poll()
        consumer.commit_later()
        await asyncio.sleep(6)
        found.append(await consumer.committed(QUEUE))
        await consumer.poll()
        return found

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read, auto_commit=False) == [None, 10, 3, 20]
        assert stored_offset(sim) == 20


def test_seek_goes_to_an_offset_the_beginning_the_end_or_a_time() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        await consumer.seek(QUEUE, 22)
        assert bodies(await consumer.poll()) == [*numbers(22, 25), b"late"]
        await consumer.seek_to_begin(QUEUE)
        assert consumer.position(QUEUE) == 0
        assert bodies(await consumer.poll()) == numbers(0, 10)
        await consumer.seek_to_end(QUEUE)
        assert await consumer.poll(timeout_s=1) == []
        await consumer.seek_to_timestamp(QUEUE, late_ms)
        assert bodies(await consumer.poll()) == [b"late"]
        with pytest.raises(ValueError, match="which has 0 to 26"):
            await consumer.seek(QUEUE, 27)
        with pytest.raises(ValueError, match="not read by this consumer"):
            await consumer.seek(OTHER, 0)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        sim.advance(60)
        late_ms = sim.clock()
        send(sim, b"late")
        run(sim, read)


def test_what_was_polled_before_a_seek_has_no_say_after_it() -> None:
    async def read(consumer: LitePullConsumer) -> int:
        await consumer.poll()
        await consumer.seek_to_begin(QUEUE)
        await asyncio.sleep(1)  # the same messages are pulled again
        await consumer.poll()
        return consumer.position(QUEUE)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read) == 0


def test_a_seek_back_is_committed_although_it_is_smaller() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        for _ in range(3):
            await consumer.poll()
        await consumer.commit()
        await consumer.seek(QUEUE, 5)
        await consumer.commit()

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read)
        assert stored_offset(sim) == 5


def test_a_paused_queue_is_not_polled_until_it_is_resumed() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        consumer.pause([QUEUE])
        assert await consumer.poll() == []
        consumer.resume([QUEUE])
        assert bodies(await consumer.poll()) == numbers(10, 20)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read)


def test_queues_assigned_by_hand_are_read_whoever_else_reads_them() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        assert await consumer.queues(TOPIC) == [QUEUE, OTHER]
        await consumer.assign([OTHER])
        got = bodies(await consumer.poll())
        await consumer.assign([QUEUE])
        assert consumer.assignment() == [QUEUE]
        await asyncio.sleep(25)  # a rebalance takes nothing away
        assert consumer.assignment() == [QUEUE]
        with pytest.raises(ValueError, match="exclude each other"):
            await consumer.subscribe(TOPIC)
        return got + bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim, queues=2)
        send(sim, b"other", queue_id=1)
        reading = sim.host("second").start(using(sim, "second", read, subscriptions={}))
        assert run(sim, read, subscriptions={}) == [b"other", *numbers(0, 10)]
        assert sim.wait(reading) == [b"other", *numbers(0, 10)]


def test_assign_is_refused_while_topics_are_subscribed() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        with pytest.raises(ValueError, match="exclude each other"):
            await consumer.assign([QUEUE])

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        run(sim, read)


def test_two_readers_share_the_queues_and_nothing_comes_twice() -> None:
    told: list[tuple[str, int]] = []

    def listen(topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        told.append((topic, len(mine)))

    async def read(consumer: LitePullConsumer) -> list[bytes]:
        got = []
        for _ in range(60):
            got += bodies(await consumer.poll(timeout_s=1))
            await asyncio.sleep(0.1)
        return got

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        options = {"batch": 2, "listener": listen}
        first = sim.host("a").start(using(sim, "a", read, **options))
        sim.advance(5)
        second = sim.host("b").start(using(sim, "b", read, **options))
        for number in range(100):
            send(sim, b"%d" % number, queue_id=number % 4)
            sim.advance(0.05)
        got = sim.wait(first) + sim.wait(second)
        assert sorted(got, key=int) == numbers(0, 100)
        assert told[0] == (TOPIC, 4)
        assert (TOPIC, 2) in told


def test_a_queue_is_handed_over_when_its_reader_polls_again() -> None:
    async def read_slowly(consumer: LitePullConsumer) -> list[bytes]:
        got = []
        for _ in range(8):
            got += bodies(await consumer.poll(timeout_s=1))
            await asyncio.sleep(3)
        return got

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        for queue_id in range(2):
            send(sim, *numbers(10 * queue_id, 10 * queue_id + 6), queue_id=queue_id)
        first = sim.host("a").start(using(sim, "a", read_slowly, batch=2))
        sim.advance(4)
        second = sim.host("b").start(using(sim, "b", read_slowly, batch=2))
        got = sim.wait(first) + sim.wait(second)
        assert sorted(got, key=int) == numbers(0, 6) + numbers(10, 16)


def test_a_topic_can_be_subscribed_and_left_while_it_runs() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.subscribe(TOPIC, Sql("n > 22"))
        assert bodies(await consumer.poll()) == [b"high"]
        await consumer.unsubscribe(TOPIC)
        assert await consumer.poll(timeout_s=3) == []
        assert consumer.assignment() == []

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"low", n="3")
        send(sim, b"high", n="23")
        run(sim, read, subscriptions={})


def test_functions_are_refused_and_so_is_polling_before_the_start() -> None:
    with pytest.raises(ValueError, match="filters what it polled itself"):
        LitePullConsumer(GROUP, {TOPIC: Only(lambda message: True)})
    with pytest.raises(NotStarted, match="async with"):
        LitePullConsumer(GROUP).assignment()


def test_two_polls_at_once_lose_no_progress() -> None:
    async def read(consumer: LitePullConsumer) -> tuple[list[bytes], int]:
        first, second = await asyncio.gather(consumer.poll(), consumer.poll())
        await consumer.poll()
        return bodies([*first, *second]), consumer.position(QUEUE)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read) == (numbers(0, 20), 20)


def test_a_seek_in_a_queue_that_is_lost_meanwhile_says_so() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        held = consumer.member.held[QUEUE]
        seeking = asyncio.gather(consumer.seek(QUEUE, 3), return_exceptions=True)
        await asyncio.sleep(0)
        consumer.member.assignment.lose(held)
        assert "not read by this consumer now" in str(await seeking)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read)
