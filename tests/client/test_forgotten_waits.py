"""A block that ends right after `start`, which does not wait: its consumer seems to do nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from sparrowmq import MessageExt, PushConsumer
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import create_topic, send
from tests.client.simulated_push import push_consumer

Body = Callable[[PushConsumer, asyncio.Event], Awaitable[None]]


async def ends_at_once(consumer: PushConsumer, arrived: asyncio.Event) -> None:
    """Nothing else is in the block."""


async def waits(consumer: PushConsumer, arrived: asyncio.Event) -> None:
    await asyncio.sleep(1.1)


async def waits_for_a_message(consumer: PushConsumer, arrived: asyncio.Event) -> None:
    await arrived.wait()


async def stops(consumer: PushConsumer, arrived: asyncio.Event) -> None:
    await consumer.stop()


async def fails(consumer: PushConsumer, arrived: asyncio.Event) -> None:
    raise LookupError("no such order")


def leave_a_block(sim: RunningCluster, body: Body) -> None:
    arrived = asyncio.Event()

    async def handle(messages: Sequence[MessageExt]) -> None:
        arrived.set()

    async def use() -> None:
        async with sim.client_on("member") as client, push_consumer(client) as consumer:
            await consumer.start(handle)
            await body(consumer, arrived)

    try:
        sim.run(use(), on=sim.host("member"))
    except LookupError:
        assert body is fails


@pytest.mark.parametrize(
    ("body", "is_warned"),
    [
        (ends_at_once, True),
        (waits, False),
        (waits_for_a_message, False),
        (stops, False),
        (fails, False),
    ],
)
def test_a_block_that_ends_at_once_and_got_no_message_is_warned(
    body: Body, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        if body is waits_for_a_message:
            send(sim, b"one")
        leave_a_block(sim, body)
    said = [line for line in caplog.messages if line.startswith("the block of the consumer")]
    assert len(said) == is_warned
    assert all("of group billing ended 0.00 s after start()" in line for line in said)
