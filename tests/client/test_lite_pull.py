"""What a lite pull consumer polls, and which messages count as consumed."""

import asyncio
from typing import Any

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.subscriptions import Only
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.lite_readers import QUEUE, bodies, numbers, run, using, with_25_messages
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset


def test_poll_returns_batches_in_order_and_nothing_on_timeout() -> None:
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


def test_polled_messages_are_committed_and_the_next_reader_continues_there() -> None:
    async def one_batch(consumer: LitePullConsumer) -> list[bytes]:
        return bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, one_batch) == numbers(0, 10)
        assert stored_offset(sim) == 10
        assert run(sim, one_batch) == numbers(10, 20)


def test_a_batch_whose_processing_raised_is_polled_again() -> None:
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


def test_a_commit_past_the_end_of_its_queue_is_refused() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        with pytest.raises(ValueError, match=r"offset 1000000 is past the end of .* which is 25"):
            await consumer.commit({QUEUE: 10**6})
        assert await consumer.committed(QUEUE) is None
        await consumer.commit({QUEUE: 25})  # not polled yet, but there

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read, auto_commit=False, batch=3, limits=FlowLimits(messages=3))
        assert stored_offset(sim) == 25


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


@pytest.mark.parametrize("options", [{"limits": FlowLimits(messages=5)}, {"limit_all": 5}])
def test_prefetching_stays_within_the_limit_of_unpolled_messages(options: dict[str, Any]) -> None:
    async def wait(consumer: LitePullConsumer) -> int:
        await asyncio.sleep(5)
        return len(membership_of(consumer).held[QUEUE].process_queue)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, wait, batch=3, **options) == 6


def test_a_reader_with_an_offset_out_of_range_continues_at_the_end_of_the_queue() -> None:
    async def commit_too_much(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        consumer.commit_later({QUEUE: 99})  # without a check, which needs the broker

    async def read(consumer: LitePullConsumer) -> list[bytes]:
        return bodies(await consumer.poll(timeout_s=60))

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, commit_too_much, auto_commit=False)
        task = sim.host("reader").start(using(sim, "reader", read))
        sim.advance(10)
        send(sim, b"x")
        assert sim.wait(task) == [b"x"]
