"""Load on simulated hosts: a feeder sends again and again until it is stopped."""

import asyncio
from collections.abc import Awaitable, Callable

from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.client.members import TOPIC

Send = Callable[[Producer, int], Awaitable[object]]
"""Sends; its argument is the number of earlier sends."""


def to_queues_in_turn(queues: int) -> Send:
    """One message, to one queue after the other."""

    def send(producer: Producer, number: int) -> Awaitable[object]:
        queue = MessageQueue(TOPIC, "broker-a", number % queues)
        return producer.send(Message(TOPIC, b"%d" % number), queue=queue)

    return send


def in_batches(count: int) -> Send:
    """So many messages together."""

    def send(producer: Producer, number: int) -> Awaitable[object]:
        return producer.send_batch([Message(TOPIC, b"%d" % one) for one in range(count)])

    return send


class SimFeeder:
    """Sends until told to stop."""

    def __init__(self, sim: RunningCluster, send: Send, *, pause_s: float) -> None:
        self._sim = sim
        self._send = send
        self._pause_s = pause_s
        self._stopping = asyncio.Event()
        self._task = sim.host("feeder").start(self._feed(), name="feeder")

    async def _feed(self) -> None:
        client = self._sim.client_on("feeder")
        await client.start()
        number = 0
        async with Producer("feeder", client=client) as producer:
            while not self._stopping.is_set():
                await self._send(producer, number)
                number += 1
                await asyncio.sleep(self._pause_s)
        await client.stop()

    def stop(self) -> None:
        """Finish the last send."""
        self._stopping.set()
        self._sim.wait(self._task)
