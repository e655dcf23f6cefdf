"""An operator in a simulated cluster, and the clients it inspects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from sparrowmq import (
    Admin,
    Client,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendResult,
)
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

T = TypeVar("T")


def as_operator(
    sim: RunningCluster, work: Callable[[Admin], Awaitable[T]], *, timeout_s: float = 5.0
) -> T:
    """The result of an operator's work on its own host."""

    async def run(client: Client) -> T:
        return await work(Admin(client=client, timeout_s=timeout_s))

    return as_client(sim, run)


def as_client(sim: RunningCluster, work: Callable[[Client], Awaitable[T]]) -> T:
    """The same for work that sends and consumes as well."""

    async def run() -> T:
        client = sim.client_on("operator")
        await client.start()
        try:
            return await work(client)
        finally:
            await client.stop()

    return sim.run(run(), on=sim.host("operator"))


def refused_with_orders(
    method: str, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    """The call raises that error, in a cluster whose only topic is `orders`."""

    async def work(admin: Admin) -> None:
        await admin.create_topic("orders")
        with pytest.raises(kind, match=text):
            await getattr(admin, method)(**arguments)

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


async def send(client: Client, *messages: Message) -> list[SendResult]:
    """One after the other."""
    async with Producer("shop", client=client) as producer:
        return [await producer.send(message) for message in messages]


def numbered(topic: str, count: int) -> Iterable[Message]:
    """Messages that can be distinguished."""
    return (Message(topic, b"%d" % number, keys=f"key-{number}") for number in range(count))


class Read:
    """What a member has read so far."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self._came = asyncio.Event()

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        self.messages += messages
        self._came.set()

    async def until(self, count: int) -> None:
        """Return when there are that many."""
        while len(self.messages) < count:
            self._came.clear()
            await self._came.wait()


@asynccontextmanager
async def consuming(
    client: Client, group: str, topic: str, count: int, expression: str = "*"
) -> AsyncIterator[Read]:
    """A live member that has read `count` messages from the beginning."""
    read = Read()
    async with PushConsumer(
        group, {topic: expression}, client=client, from_where=ConsumeFromWhere.FIRST_OFFSET
    ) as consumer:
        await consumer.start(read.handle)
        await read.until(count)
        yield read
