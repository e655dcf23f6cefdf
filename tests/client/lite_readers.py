"""Lite pull consumers on simulated hosts, for tests of what they read."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.client.members import GROUP, TOPIC, create_topic, send

T = TypeVar("T")
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
OTHER = MessageQueue(TOPIC, "broker-a", 1)
Work = Callable[[LitePullConsumer], Awaitable[T]]


async def using(sim: RunningCluster, name: str, work: Work[T], **options: Any) -> T:
    """Work with a started consumer that subscribes to the topic by default."""
    client = sim.client_on(name, routes)
    await client.start()
    group = options.pop("group", GROUP)
    options.setdefault("subscriptions", {TOPIC: "*"})
    options.setdefault("from_where", ConsumeFromWhere.FIRST_OFFSET)
    try:
        async with LitePullConsumer(group, client=client, **options) as consumer:
            return await work(consumer)
    finally:
        await client.stop()


def run(sim: RunningCluster, work: Work[T], *, name: str = "reader", **options: Any) -> T:
    """The same on a separate host; returns the result of the work."""
    return sim.run(using(sim, name, work, **options), on=sim.host(name))


def bodies(messages: Sequence[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def with_25_messages(sim: RunningCluster, queues: int = 1) -> None:
    create_topic(sim, queues)
    send(sim, *numbers(0, 25))
