"""Looking at all offsets now and then, for the statistics."""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.statistics import SAMPLE_MS


def sample(broker: Broker) -> None:
    """Bring the statistics up to date."""
    ends: dict[str, dict[int, int]] = {}
    for topic, queue_id in broker.store.queues():
        ends.setdefault(topic, {})[queue_id] = broker.store.max_offset(topic, queue_id)
    broker.statistics.sample(broker.clock(), ends.items(), broker.offsets.rows())


async def keep_sampling(broker: Broker) -> None:
    """Sample for ever."""
    while True:
        await asyncio.sleep(SAMPLE_MS / 1000)
        sample(broker)
