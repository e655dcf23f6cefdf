"""A stop during a start: afterwards nothing is left running."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.client.client import core_of
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.testing.held_port import HeldPort
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, create_topic

STEP_S = 0.0004
"""Finer than what a message takes from one simulated host to the other."""


async def ignore(*ignored: Any) -> None:
    pass


class Pushed(PushConsumer):
    """One whose handler is known."""

    async def start(self, *ignored: Any, **named: Any) -> None:
        await super().start(ignore)


MEMBERS: dict[str, Callable[..., Any]] = {
    "push": lambda **more: Pushed(GROUP, {TOPIC: "*"}, threads=InlineWorkers(), **more),
    "lite pull": lambda **more: LitePullConsumer(GROUP, {TOPIC: "*"}, **more),
    "pull": lambda **more: PullConsumer(GROUP, [TOPIC], **more),
    "scheduled pull": lambda **more: ScheduledPull(GROUP, {TOPIC: ignore}, **more),
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_member_that_is_stopped_at_any_step_of_its_start_is_stopped(kind: str) -> None:
    async def work() -> int:
        client = sim.client_on("member", routes)
        await client.start()
        member = MEMBERS[kind](client=client)
        await member.start()
        await member.stop()
        await asyncio.sleep(5)
        before = len(asyncio.all_tasks())
        step = 0
        was_started = False
        while not was_started:
            member = MEMBERS[kind](client=client)
            async with asyncio.TaskGroup() as tasks:
                start = tasks.create_task(member.start())
                await asyncio.sleep(step * STEP_S)
                was_started = start.done()
                await member.stop()
                assert not core_of(client).consumers
            await asyncio.sleep(5)
            assert not core_of(client).consumers
            assert len(asyncio.all_tasks()) == before
            step += 1
        await client.stop()
        return step

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        assert sim.run(work(), on=sim.host("member")) > 10


@pytest.mark.parametrize("turns", range(1, 4))
def test_a_producer_s_own_client_is_stopped_even_if_it_has_just_begun_to_start(turns: int) -> None:
    async def work(servers: str) -> None:
        producer = Producer("p", name_servers=servers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(producer.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            await producer.stop()
        assert not core_of_producer(producer).is_running

    with HeldPort() as port:
        asyncio.run(work(f"127.0.0.1:{port.port}"))
