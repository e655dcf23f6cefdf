"""Delayed messages, timers and transactions: their state, and the loops that deliver them."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.delivery import (
    delay_levels,
    timer_delivery,
    timer_persistence,
    transaction_checks,
    transactions,
)
from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.delivery.delay_levels import DelayLevels
from sparrowmq.broker.delivery.half_messages import PendingHalves, recover_half_messages
from sparrowmq.broker.delivery.timer_index import TimerIndex
from sparrowmq.broker.delivery.timer_persistence import recover_timers
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.net.tasks import Loop
from sparrowmq.store.store import Store


@dataclass(slots=True, kw_only=True)
class Delivery:
    """Everything that waits for delivery, and how far delivery has come."""

    clock: ClockSteps
    """The time of day, for everything that stores or delivers waiting messages."""
    levels: DelayLevels
    timers: TimerIndex
    halves: PendingHalves
    log_at_start: int
    """Where the log ended when the broker started: nothing past it was delivered before."""
    lookups_left: dict[int, int] = field(default_factory=dict)
    """Level (0: timers) → how many more due messages are looked up, see `earlier_deliveries`."""
    half_messages_progress: tuple[int, int, int] | None = None
    """Offsets of half and operation topic, to be committed when the log is durable up to there."""

    committed: Counter[str] = field(default_factory=Counter)
    """Transactions that producers have committed since the start, by topic."""
    rolled_back: Counter[str] = field(default_factory=Counter)
    """Transactions that producers have rolled back since the start, by topic."""

    @staticmethod
    def open(
        config: BrokerConfig,
        env: Environment,
        store: Store,
        offsets: ConsumerOffsets,
        saving: TableSaving,
    ) -> "Delivery":
        """Load what waits in the store, and how far delivery had come. Raises TableMissing."""
        steps = ClockSteps.open(
            env.disk, store, saving, env.clock, env.monotonic, env.boot, env.report
        )
        return Delivery(
            clock=steps,
            log_at_start=store.max_log_offset,
            levels=DelayLevels.open(env.disk, store, steps, env.clock, env.report),
            timers=recover_timers(env.disk, store),
            halves=recover_half_messages(
                store,
                offsets,
                steps,
                env.monotonic,
                timeout_ms=int(config.transaction_timeout_s * 1000),
                interval_ms=int(config.transaction_check_interval_s * 1000),
            ),
        )

    def close(self) -> None:
        """Close files."""
        self.levels.progress.close()


def loops(broker: Broker) -> list[Loop]:
    """The loops with which a broker delivers; each runs forever."""
    return [
        partial(delay_levels.deliver_delayed, broker),
        partial(delay_levels.save_progress, broker),
        partial(timer_delivery.deliver_timers, broker),
        partial(timer_persistence.save_progress, broker),
        partial(transaction_checks.check_transactions, broker),
        partial(transactions.save_progress, broker),
    ]


async def save(broker: Broker) -> None:
    """Save how far delivery has come."""
    for _ in range(2):  # first what was waiting to become durable, then the current state
        await delay_levels.journal_progress(broker)
        await timer_persistence.save_mark(broker)
        transactions.commit_progress(broker)
    await broker.delivery.levels.progress.save(broker.workers)


async def close(broker: Broker) -> None:
    """Save everything for the next start, also for Apache's broker. The log must be durable."""
    await save(broker)
    await timer_persistence.leave_to_apache(broker)
