"""A cluster whose broker-a is emptied: its topic, its messages and who reads them."""

import asyncio

from sparrowmq import (
    Admin,
    Client,
    DrainState,
    Message,
    Producer,
)
from sparrowmq.client.client import core_of
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.perm import is_writable
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import as_operator, consuming, numbered, send

A = "broker-a"
TWO = SimCluster(brokers=2)


def perms(sim: RunningCluster, topic: str = "orders") -> dict[str, bool]:
    """Whether producers may send, by the brokers that clients find."""

    async def look(admin: Admin) -> dict[str, bool]:
        route = await admin.route(topic)
        return {each.broker_name: is_writable(each.perm) for each in route.queue_datas}

    return as_operator(sim, look)


def state(sim: RunningCluster, name: str = A) -> DrainState:
    return sim.brokers[name].broker.drain.state


def stored(sim: RunningCluster, name: str = A, topic: str = "orders") -> int:
    """Messages that a broker has of a topic."""
    broker = sim.brokers[name].broker
    return sum(broker.store.max_offset(topic, queue_id) for queue_id in range(8))


async def with_topic(client: Client) -> Admin:
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=2)
    return admin


async def sim_call(
    sim: RunningCluster, client: Client, header: RequestHeader, name: str = A
) -> int:
    """The code of a broker's answer."""
    peers = core_of(client).peers
    response = await peers.call(sim.brokers[name].address, header, timeout_s=5.0)
    return response.code


async def on_a(client: Client, count: int, topic: str = "orders", **more: object) -> None:
    """Messages that are on the broker which is going to drain."""
    async with Producer("shop", client=client) as producer:
        queues = [each for each in await producer.queues(topic) if each.broker_name == A]
        for number in range(count):
            message = Message(topic, b"%d" % number, **more)  # type: ignore[arg-type]
            await producer.send(message, queue=queues[number % len(queues)])


async def read_once(client: Client, group: str) -> None:
    """A group that has read every queue and is offline now."""
    await send(client, *numbered("orders", 4))
    async with consuming(client, group, "orders", 4):
        await asyncio.sleep(10)
