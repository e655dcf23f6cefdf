"""Clusters in which something is wrong on purpose, and a patient doctor."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sparrowmq import (
    Admin,
    Client,
    ConsumeFromWhere,
    Examination,
    Finding,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from sparrowmq.client.client import core_of
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import as_client

Provoke = Callable[["Scene"], Awaitable[Examination]]


@dataclass
class Scene:
    """A simulated cluster and an operator in it."""

    sim: RunningCluster
    client: Client

    @property
    def admin(self) -> Admin:
        return Admin(client=self.client)

    async def doctor(self, *about: str, **more: Any) -> Examination:
        return await self.admin.doctor(*about, **more)

    async def call(self, address: str, header: RequestHeader, body: bytes = b"") -> None:
        """A request of any kind."""
        response = await core_of(self.client).peers.call(address, header, body, timeout_s=5.0)
        assert response.code == 0, response.remark

    @property
    def broker_address(self) -> str:
        return next(iter(self.sim.brokers.values())).address

    async def topic(self, queues: int = 1, messages: int = 0, **more: Any) -> None:
        """The topic `orders`, with messages in queue 0 of broker-a."""
        await self.admin.create_topic("orders", queues=queues, **more)
        await self.send(messages)

    async def send(self, messages: int, **settings: Any) -> list[str]:
        """Their ids."""
        queue = MessageQueue("orders", "broker-a", 0)
        async with Producer("shop", client=self.client) as producer:
            bodies = (Message("orders", b"%d" % number, **settings) for number in range(messages))
            return [(await producer.send(each, queue=queue)).msg_id for each in bodies]

    @asynccontextmanager
    async def member(
        self,
        handle: Callable[[Sequence[MessageExt]], Awaitable[Any]],
        *,
        name: str | None = None,
        expression: str = "*",
        **settings: Any,
    ) -> AsyncIterator[PushConsumer]:
        """A live member of `billing`; `name` is its host, the operator's unless given."""
        client = self.client if name is None else self.sim.client_on(name)
        if name is not None:
            await client.start()
        settings = {"from_where": ConsumeFromWhere.FIRST_OFFSET, **settings}
        try:
            async with PushConsumer(
                "billing", {"orders": expression}, client=client, stop_within_s=0.1, **settings
            ) as consumer:
                await consumer.start(handle)
                yield consumer
        finally:
            if name is not None:
                await client.stop()


async def succeed(messages: Sequence[MessageExt]) -> None:
    """A handler without a fault."""


async def fail(messages: Sequence[MessageExt]) -> None:
    """A handler that always fails."""
    raise ValueError("the ledger is away")


async def wait_for_ever(messages: Sequence[MessageExt]) -> None:
    """A handler that never returns."""
    await asyncio.get_running_loop().create_future()


@dataclass
class Provocations:
    """Scenes by the id that they provoke."""

    scenes: dict[str, tuple[dict[str, Any], Provoke]] = field(default_factory=dict)

    def provokes(self, name: str, **cluster: Any) -> Callable[[Provoke], Provoke]:
        """Register a scene; `cluster` are arguments of SimCluster."""

        def register(scene: Provoke) -> Provoke:
            assert name not in self.scenes
            self.scenes[name] = (cluster, scene)
            return scene

        return register

    def play(self, name: str) -> Examination:
        """The doctor's report in that scene."""
        cluster, scene = self.scenes[name]
        with SimCluster(seed=1, **cluster).run() as sim:
            return as_client(sim, lambda client: scene(Scene(sim, client)))


def of(examined: Examination, name: str) -> Finding:
    """The finding with that id."""
    found = [each for each in examined.findings if each.id == name]
    assert found, f"{name} is not among {[str(each) for each in examined.findings]}"
    return found[0]
