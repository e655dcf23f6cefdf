"""Looking at all offsets now and then, for the statistics."""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.statistics import SAMPLE_MS

_FRESH_MS = 1_000


def refresh(broker: Broker) -> None:
    """Bring the statistics up to date for somebody who asks, at most once a second: with thousands
    of queues a look takes milliseconds, and a tool may ask for every topic in turn."""
    if broker.clock() - broker.statistics.sampled_ms >= _FRESH_MS:
        sample(broker)


def sample(broker: Broker) -> None:
    """Look at all offsets now."""
    ends: dict[str, dict[int, int]] = {}
    for topic, queue_id in broker.store.queues():
        ends.setdefault(topic, {})[queue_id] = broker.store.max_offset(topic, queue_id)
    broker.statistics.sample(broker.clock(), ends.items(), broker.offsets.rows())


async def keep_sampling(broker: Broker) -> None:
    """Sample for ever."""
    while True:
        await asyncio.sleep(SAMPLE_MS / 1000)
        sample(broker)
