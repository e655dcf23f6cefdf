"""Members of a consumer group on simulated hosts, and a producer that feeds them."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.sending.producer import Producer
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster

TOPIC = "orders"
GROUP = "billing"


def create_topic(sim: RunningCluster, queues: int) -> None:
    """On every broker, and known to the name servers."""
    header = CreateTopic(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    for node in sim.brokers.values():
        sim.wait(sim.client.call(header, address=node.address))
    sim.advance(1)


class Member:
    """One consumer. What it handled is counted in `handled`, shared by its group."""

    def __init__(self, sim: RunningCluster, name: str, handled: Counter[bytes]) -> None:
        self.name = name
        self._sim = sim
        self._handled = handled
        self._rng = sim.rng(name)
        self._leaving = asyncio.Event()
        self._consumer: PushConsumer
        self._task = sim.host(name).start(self._consume(), name=name)

    async def _consume(self) -> None:
        client = self._sim.client_on(self.name, routes)
        await client.start()
        self._consumer = PushConsumer(
            GROUP,
            {TOPIC: "*"},
            client=client,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            threads=InlineWorkers(),
        )
        async with self._consumer:
            await self._consumer.start(self._handle)
            await self._leaving.wait()
        await client.stop()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        await asyncio.sleep(self._rng.random() / 20)
        self._handled.update(message.body for message in messages)

    def queues(self) -> list[MessageQueue]:
        """Those of the topic that it holds now."""
        return [queue for queue in self._consumer.assignment() if queue.topic == TOPIC]

    def leave(self) -> None:
        """Stop in order."""
        self._leaving.set()
        self._sim.wait(self._task)

    def kill(self) -> None:
        self._sim.host(self.name).kill()


class Feeder:
    """Sends until told to stop; `sent` are the bodies that are certainly there."""

    def __init__(self, sim: RunningCluster) -> None:
        self.sent: list[bytes] = []
        self._sim = sim
        self._stopping = asyncio.Event()
        self._task = sim.host("feeder").start(self._feed(), name="feeder")

    async def _feed(self) -> None:
        client = self._sim.client_on("feeder")
        await client.start()
        async with Producer("feeder", client=client) as producer:
            while not self._stopping.is_set():
                body = f"{len(self.sent)}".encode()
                await producer.send(Message(TOPIC, body))
                self.sent.append(body)
                await asyncio.sleep(0.02)
        await client.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._sim.wait(self._task)
