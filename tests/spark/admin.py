"""Topics made by an operator, for the tests."""

import asyncio

from sparrowmq.admin.admin import Admin
from sparrowmq.testing import Cluster


def create_topic(running: Cluster, topic: str, queues: int) -> None:
    """Create a topic on all brokers, or change it."""

    async def create() -> None:
        async with Admin(running.name_server) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(create())
