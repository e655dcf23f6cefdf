"""Lite pull: sharing the queues of topics with a group."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sparrowmq.client.broker_calls import Position, commit_offset
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.errors import QueueLost
from sparrowmq.client.group import offsets
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.strategies import by_configuration
from sparrowmq.client.subscriptions import Sql
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.lite_readers import OTHER, QUEUE, bodies, numbers, run, using, with_25_messages
from tests.client.members import TOPIC, create_topic, send


def test_two_readers_share_the_queues_and_no_message_is_repeated() -> None:
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
        options: dict[str, Any] = {"batch": 2, "listener": listen}
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


def test_progress_of_a_queue_that_is_not_ours_is_not_committed() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        assert consumer.assignment() == [QUEUE]
        with pytest.raises(ValueError, match="is not read by this consumer now"):
            await consumer.commit({QUEUE: 5, OTHER: 7})
        with pytest.raises(ValueError, match="is not read by this consumer now"):
            consumer.commit_later({OTHER: 7})
        assert [await consumer.committed(queue) for queue in (QUEUE, OTHER)] == [None, None]

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim, queues=2)
        run(sim, read, strategy=by_configuration([QUEUE]))


def test_progress_of_a_queue_that_was_read_and_lost_is_not_committed() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        member = membership_of(consumer)
        member.ownership.lose(member.held[QUEUE])
        with pytest.raises(QueueLost, match="went to another member"):
            consumer.commit_later({QUEUE: 5})

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read, auto_commit=False)


def test_a_commit_raises_for_a_queue_lost_while_another_s_progress_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slowly(
        client: ClientCore, group: str, queue: MessageQueue, position: Position
    ) -> None:
        await asyncio.sleep(1)
        await commit_offset(client, group, queue, position)

    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        other = membership_of(consumer).held[OTHER]
        committing = asyncio.gather(consumer.commit({QUEUE: 5, OTHER: 1}), return_exceptions=True)
        await asyncio.sleep(0.5)
        membership_of(consumer).ownership.lose(other)
        assert "queueId=1] went to another member" in str(await committing)
        assert [await consumer.committed(queue) for queue in (QUEUE, OTHER)] == [5, None]

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim, queues=2)
        send(sim, b"other", queue_id=1)
        monkeypatch.setattr(offsets, "commit_offset", slowly)
        run(sim, read, auto_commit=False)


def test_a_commit_that_does_not_reach_the_broker_is_an_error() -> None:
    async def read(consumer: LitePullConsumer) -> None:
        await consumer.poll()
        sim.paths.partition([sim.host("reader")], [sim.host("broker-a")])
        with pytest.raises(NetError):
            await consumer.commit()
        sim.paths.heal()

    with SimCluster(seed=1).run() as sim:
        with_25_messages(sim)
        run(sim, read)
