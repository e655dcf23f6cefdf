"""What a broker runs for messages that are delivered later than they were sent."""

from collections.abc import Coroutine
from typing import Any

from sparrowmq.broker import delay
from sparrowmq.broker.broker import Broker


def loops(broker: Broker) -> list[Coroutine[Any, Any, None]]:
    """All of them; each runs for ever."""
    return [delay.deliver_delayed(broker), delay.save_progress(broker)]


async def close(broker: Broker) -> None:
    """Save how far delivery has come. Everything in the log must be durable already."""
    await delay.journal_progress(broker)
    await delay.journal_progress(broker)
    await broker.delivery.levels.progress.save(broker.workers)
