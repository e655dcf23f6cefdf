"""What a broker runs for messages that are delivered later than they were sent."""

from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery import (
    delay,
    timer,
    timer_saving,
    transactions_check,
    transactions_progress,
)
from sparrowmq.broker.whole_steps import Loop


def loops(broker: Broker) -> list[Loop]:
    """All of them; each runs for ever."""
    return [
        partial(delay.deliver_delayed, broker),
        partial(delay.save_progress, broker),
        partial(timer.deliver_timers, broker),
        partial(timer_saving.save_progress, broker),
        partial(transactions_check.check_transactions, broker),
        partial(transactions_progress.save_progress, broker),
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
