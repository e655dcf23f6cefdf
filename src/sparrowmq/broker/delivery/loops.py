"""What a broker runs for messages that are delivered later than they were sent."""

from collections.abc import Coroutine
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery import (
    delay,
    timer,
    timer_saving,
    transactions_check,
    transactions_progress,
)


def loops(broker: Broker) -> list[Coroutine[Any, Any, None]]:
    """All of them; each runs for ever."""
    return [
        delay.deliver_delayed(broker),
        delay.save_progress(broker),
        timer.deliver_timers(broker),
        timer_saving.save_progress(broker),
        transactions_check.check_transactions(broker),
        transactions_progress.save_progress(broker),
    ]


async def close(broker: Broker) -> None:
    """The last words of delivery. Everything in the log must be durable already."""
    await save(broker)
    await timer_saving.leave_to_apache(broker)


async def save(broker: Broker) -> None:
    """Save how far delivery has come."""
    for _ in range(2):  # what was noted before, then what is true now
        await delay.journal_progress(broker)
        await timer_saving.save_mark(broker)
        transactions_progress.commit_progress(broker)
    await broker.delivery.levels.progress.save(broker.workers)
