"""Consumers on simulated hosts, for tests of what they do with messages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sparrowmq.client.consuming.handler_calls import Handler
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.subscriptions import Filter
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster

TOPIC = "orders"
GROUP = "billing"


def create_topic(
    sim: RunningCluster, queues: int = 1, topic: str = TOPIC, attributes: str | None = None
) -> None:
    """On every broker, and known to the name servers."""
    header = CreateTopic(
        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6, attributes=attributes
    )
    for node in sim.brokers.values():
        sim.wait(sim.client.call(header, address=node.address))
    sim.advance(1)


def send(sim: RunningCluster, *bodies: bytes, queue_id: int = 0, **properties: str) -> None:
    for body in bodies:
        sim.wait(sim.client.send(TOPIC, body, queue_id=queue_id, **properties))


def stored_offset(sim: RunningCluster, queue_id: int = 0, topic: str = TOPIC) -> int:
    """What the broker keeps for the group."""
    header = QueryConsumerOffset(consumer_group=GROUP, topic=topic, queue_id=queue_id)
    return sim.wait(sim.client.call(header)).header(OffsetFound).offset


class Member:
    """A started push consumer on its own host. `got` lists the bodies its handler received."""

    def __init__(
        self,
        sim: RunningCluster,
        handle: Callable[[MessageExt], Awaitable[None]] | None = None,
        *,
        name: str = "member",
        group: str = GROUP,
        handler: Handler | None = None,
        subscriptions: Mapping[str, Filter] | None = None,
        client: Mapping[str, Any] | None = None,
        wait_s: float | None = None,
        **options: Any,
    ) -> None:
        """`handle` sees one message at a time, `handler` whole batches. `client` holds settings of
        its client, `options` those of the consumer."""
        self.got: list[bytes] = []
        self.sim = sim
        self.host = sim.host(name)
        self._handle_one = handle
        self._leaving = asyncio.Event()
        if not options.keys() & {"from_timestamp_ms", "from_time"}:
            options.setdefault("from_where", ConsumeFromWhere.FIRST_OFFSET)
        self.consumer = PushConsumer(
            group,
            subscriptions or {TOPIC: "*"},
            client=sim.client_on(name, routes, **(client or {})),
            threads=InlineWorkers(),
            **options,
        )
        self._handler = handler or self._handle
        self._wait_s = wait_s
        started = asyncio.Event()
        self.task = self.host.start(self._live(started), name=name)
        sim.until(lambda: started.is_set() or self.task.done())
        if self.task.done():
            self.task.result()

    async def _live(self, started: asyncio.Event) -> None:
        client = core_of_consumer(self.consumer)
        await client.start()
        try:
            async with self.consumer:
                await self.consumer.start(self._handler, wait_s=self._wait_s)
                started.set()
                await self._leaving.wait()
        finally:
            await client.stop()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            self.got.append(message.body)
            if self._handle_one is not None:
                await self._handle_one(message)

    def leave_soon(self) -> None:
        """Stop in order, when it runs."""
        self._leaving.set()

    def leave(self) -> None:
        """Stop in order."""
        self.leave_soon()
        self.sim.wait(self.task)


def owned(member: Member) -> int:
    """How many queues of the topic it holds."""
    return sum(queue.topic == TOPIC for queue in member.consumer.assignment())


def miss_progress_of_others(sim: RunningCluster, member: Member, still_s: float) -> None:
    """It is paused for a while; another member consumes its queue up to 9 and leaves again."""
    member.host.pause()
    sim.advance(still_s)
    commit = UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=9)
    sim.wait(sim.client.call(commit))
    member.host.resume()
    sim.advance(30)
