"""Topics made by an operator, for the tests."""

import asyncio

from sparrowmq.admin.admin import Admin
from sparrowmq.testing import Cluster


def create_topic(running: Cluster, topic: str, queues: int) -> None:
    """Create a topic on all brokers, or change it."""
    create_topic_at(running.name_server, topic, queues)


def create_topic_at(name_server: str, topic: str, queues: int) -> None:
    """The same for tests that know the name server only."""

    async def create() -> None:
        async with Admin(name_server) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(create())
