"""The low-level pull consumer: the application decides what to pull, and when."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from sparrowmq.client.consuming.pull_consumer import PullConsumer, PullStatus
from sparrowmq.client.errors import BrokerRefused, NoRoute
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.subscriptions import Sql
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


def test_a_pull_returns_the_messages_found_and_the_next_offset() -> None:
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
            with pytest.raises(ValueError, match=r"must be [01] or more"):
                await consumer.pull(QUEUE, offset, count=count)
        with pytest.raises(BrokerRefused, match="does not exist"):
            await consumer.pull(MessageQueue(TOPIC, "broker-a", 7), 0)
        with pytest.raises(NoRoute, match="does not exist"):
            await consumer.queues("nothing")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(5)))
        run(sim, read)


def test_a_topic_whose_broker_is_away_is_not_called_missing() -> None:
    async def ask(consumer: PullConsumer) -> None:
        with pytest.raises(NoRoute, match="no broker that has the topic is alive: broker broker-a"):
            await consumer.queues(TOPIC)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        sim.brokers["broker-a"].kill()
        sim.advance(1)
        run(sim, ask)


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


def test_a_waiting_pull_is_answered_when_a_message_arrives_or_after_20_s() -> None:
    async def read(consumer: PullConsumer) -> list[PullStatus]:
        return [(await consumer.pull(QUEUE, at, waits=True)).status for at in (0, 1)]

    # Our broker lets pulls wait for 15 s by default
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
        before = dict(membership_of(consumer).held)
        await asyncio.sleep(150)
        assert membership_of(consumer).held == before  # none of them was taken again
        return consumer.assignment()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        assert len(run(sim, read, topics=[TOPIC])) == 2


def test_a_message_can_be_sent_back() -> None:
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
