"""Looking at all offsets now and then, for the statistics."""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.statistics import SAMPLE_MS
from sparrowmq.protocol.names import TIMER_TOPIC

_FRESH_MS = 1_000
DELIVERED_TIMERS = f"{TIMER_TOPIC}@delivered"
"""The timer queue is consumed by the broker itself, and out of turn: how much of it is."""


def refresh(broker: Broker) -> None:
    """Bring the statistics up to date for somebody who asks, at most once a second: with thousands
    of queues a look takes milliseconds, and a tool may ask for every topic in turn."""
    if broker.monotonic() - broker.statistics.sampled_ms >= _FRESH_MS:
        sample(broker)


def sample(broker: Broker) -> None:
    """Look at all offsets now."""
    ends: dict[str, dict[int, int]] = {}
    for topic, queue_id in broker.store.queues():
        ends.setdefault(topic, {})[queue_id] = broker.store.max_offset(topic, queue_id)
    delivered = broker.store.max_offset(TIMER_TOPIC, 0) - len(broker.delivery.timers)
    timers = (DELIVERED_TIMERS, {0: delivered})
    broker.statistics.sample(
        broker.monotonic(),
        ends.items(),
        [*broker.offsets.rows(), timers],
        log_offset=broker.store.max_log_offset,
        today_ms=broker.clock(),
    )


async def keep_sampling(broker: Broker) -> None:
    """Sample for ever."""
    while True:
        await asyncio.sleep(SAMPLE_MS / 1000)
        sample(broker)
