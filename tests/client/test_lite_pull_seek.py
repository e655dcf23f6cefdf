"""Lite pull: seeking and pausing."""

import asyncio

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.lite_readers import OTHER, QUEUE, bodies, numbers, run, with_25_messages
from tests.client.members import send, stored_offset


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


def test_messages_polled_before_a_seek_do_not_affect_progress_after_it() -> None:
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


def test_a_seek_in_a_queue_that_is_lost_meanwhile_raises() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        held = membership_of(consumer).held[QUEUE]
        seeking = asyncio.gather(consumer.seek(QUEUE, 3), return_exceptions=True)
        await asyncio.sleep(0)
        membership_of(consumer).ownership.lose(held)
        assert "not read by this consumer now" in str(await seeking)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read)


def test_a_seek_just_before_the_end_is_where_the_next_reader_begins() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        await consumer.commit()
        await consumer.seek(QUEUE, 17)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read)
        assert stored_offset(sim) == 17
