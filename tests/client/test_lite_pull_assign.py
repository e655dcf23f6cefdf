"""Lite pull: queues that the application assigns by hand."""

import asyncio
from typing import NoReturn

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.errors import NoRoute
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.net.errors import CallTimedOut
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.lite_readers import OTHER, QUEUE, bodies, numbers, run, using, with_25_messages
from tests.client.members import TOPIC, create_topic, send


def test_manually_assigned_queues_are_read_also_where_others_read_them() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        assert await consumer.queues(TOPIC) == [QUEUE, OTHER]
        await consumer.assign([OTHER])
        got = bodies(await consumer.poll())
        await consumer.assign([QUEUE])
        assert consumer.assignment() == [QUEUE]
        await asyncio.sleep(25)  # a rebalance takes nothing away
        assert consumer.assignment() == [QUEUE]
        with pytest.raises(ValueError, match="cannot be combined"):
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
        with pytest.raises(ValueError, match="cannot be combined"):
            await consumer.assign([QUEUE])

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        run(sim, read)


def test_the_last_of_several_concurrent_assigns_decides_what_is_read() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        await asyncio.gather(consumer.assign([QUEUE]), consumer.assign([OTHER]))
        assert consumer.assignment() == [OTHER]
        choices = [[QUEUE], [OTHER], [QUEUE, OTHER], [], [QUEUE]]
        await asyncio.gather(*map(consumer.assign, choices))
        assert consumer.assignment() == [QUEUE]
        return bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim, queues=2)
        send(sim, b"other", queue_id=1)
        assert run(sim, read, subscriptions={}) == numbers(0, 10)


def test_an_assign_of_a_missing_topic_changes_nothing() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        await consumer.assign([QUEUE])
        with pytest.raises(NoRoute, match="does not exist"):
            await consumer.assign([OTHER, MessageQueue("nowhere", "broker-a", 0)])
        assert consumer.assignment() == [QUEUE]
        return bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim, queues=2)
        assert run(sim, read, subscriptions={}) == numbers(0, 10)


def test_an_assigned_queue_whose_progress_cannot_be_read_now_is_read_later() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        offsets = membership_of(consumer).offsets
        load, offsets.load = offsets.load, unknown  # type: ignore[method-assign]  # for a moment
        await consumer.assign([QUEUE])
        assert consumer.assignment() == []
        offsets.load = load  # type: ignore[method-assign]  # as it was
        return bodies(await consumer.poll())

    async def unknown(*_: object, **__: object) -> NoReturn:
        raise CallTimedOut("broker-a", "QueryConsumerOffset", 3.0)

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read, subscriptions={}) == numbers(0, 10)


def test_assigned_queues_are_read_again_from_where_an_operator_resets_them() -> None:
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        await consumer.assign([QUEUE])
        await consumer.poll()
        await consumer.poll()
        await membership_of(consumer).move({QUEUE: 3})
        return bodies(await consumer.poll())

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        assert run(sim, read, subscriptions={}) == numbers(3, 13)


def test_an_assigned_queue_that_was_polled_while_others_were_assigned_goes_with_the_next_poll() -> (
    None
):
    async def read(consumer: LitePullConsumer) -> list[bytes]:
        await consumer.assign([QUEUE])
        got = bodies(await consumer.poll())
        assigning = asyncio.gather(consumer.assign([OTHER]))
        got += bodies(await consumer.poll())
        await assigning
        got += bodies(await consumer.poll())
        await asyncio.sleep(3)
        assert consumer.assignment() == [OTHER]
        return got

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim, queues=2)
        send(sim, b"other", queue_id=1)
        assert b"other" in run(sim, read, subscriptions={})
