"""Starts and stops that are cancelled at each of their steps: nothing is left running."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from sparrowmq import MessageExt
from sparrowmq.client.client import core_of
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset
from tests.client.simulated_push import push_consumer

STEP_S = 0.0002
"""Finer than what a message takes from one simulated host to the other."""


def members(sim: RunningCluster) -> list[str]:
    group = sim.broker.consumers.group(GROUP)
    return [] if group is None else group.client_ids


def test_a_start_may_be_cancelled_at_every_step_and_begun_again() -> None:
    arrived = asyncio.Event()

    async def handle(messages: Sequence[MessageExt]) -> None:
        arrived.set()

    async def work() -> int:
        client = sim.client_on("member", routes)
        await client.start()
        consumer, cancelled = push_consumer(client), 0
        while not await ended(consumer.start(handle), cancelled * STEP_S):
            await consumer.stop()
            assert not core_of(client).consumers
            consumer, cancelled = push_consumer(client), cancelled + 1
        await arrived.wait()
        await consumer.stop()
        await client.stop()
        return cancelled

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        assert sim.run(work(), on=sim.host("member")) > 5
        assert stored_offset(sim) == 1


def test_a_stop_cancelled_at_any_step_leaves_nothing_running() -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            got.put_nowait(message.body)

    async def work() -> int:
        client = sim.client_on("member", routes)
        await client.start()
        cancelled, is_over = 0, False
        while not is_over:
            consumer = push_consumer(client)
            await consumer.start(handle)
            body = b"%d" % cancelled
            await sim.client.send(TOPIC, body)
            while await got.get() != body:
                pass  # what comes again because progress was not stored
            is_over = await ended(consumer.stop(), cancelled * STEP_S)
            cancelled += not is_over
            assert not core_of(client).consumers
            await asyncio.sleep(1)
            assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("pull")]
            assert members(sim) == []
        await client.stop()
        return cancelled

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        assert sim.run(work(), on=sim.host("member")) > 5


async def ended(work: Coroutine[Any, Any, None], within_s: float) -> bool:
    """Whether it came to its end; it is cancelled otherwise."""
    try:
        async with asyncio.timeout(within_s):
            await work
    except TimeoutError:
        return False
    return True
