"""Brokers that may have to call a producer know it, even those that were away at first."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sparrowmq.client.failures import Loop
from sparrowmq.client.sending.sender import BrokerRegistrations
from sparrowmq.protocol.message import MessageQueue

QUEUES = [MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b")]


class HalfReached:
    """The part of a client that matters here; broker-b is away the first time."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self.told: list[list[str]] = []
        self.route_table = SimpleNamespace(master=lambda name: f"{name}:10911")
        self.heartbeats = SimpleNamespace(send_to=self._send_to)

    def keep(self, work: Loop, name: str) -> asyncio.Task[None]:
        return self._tasks.create_task(work(), name=name)

    def when_peer_closes(self, listener: Any) -> None:
        assert not self.told, "one listener is enough"

    async def _send_to(self, addresses: list[str]) -> set[str]:
        self.told.append(addresses)
        return {"broker-a:10911"} if len(self.told) == 1 else set(addresses)


def test_a_failed_registration_is_repeated_before_the_next_message() -> None:
    async def work() -> list[list[str]]:
        async with asyncio.TaskGroup() as tasks:
            client: Any = HalfReached(tasks)
            registrations = BrokerRegistrations(client)
            for _ in range(3):
                await registrations.register_at(QUEUES)
                await asyncio.sleep(0)
        told: list[list[str]] = client.told
        return told

    both, again = asyncio.run(work())
    assert both == ["broker-a:10911", "broker-b:10911"]
    assert again == ["broker-b:10911"]
