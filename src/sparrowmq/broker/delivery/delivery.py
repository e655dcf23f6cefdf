"""The state of everything that is delivered later than it was sent."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.delivery.delay_levels import DelayLevels
from sparrowmq.broker.delivery.timer_index import TimerIndex
from sparrowmq.broker.delivery.timer_recovery import recover_timers
from sparrowmq.broker.delivery.transactions_halves import Halves
from sparrowmq.broker.delivery.transactions_recovery import recover_halves
from sparrowmq.clock import Clock
from sparrowmq.store.disk import Disk
from sparrowmq.store.store import Store


@dataclass(slots=True, kw_only=True)
class Delivery:
    """What waits, and how far delivery has come."""

    clock: ClockSteps
    """What time it is, for whoever stores or delivers what waits."""
    levels: DelayLevels
    timers: TimerIndex
    halves: Halves
    doubts: dict[int, int] = field(default_factory=dict)
    """Level (0: timers) → of how many due messages more it is asked whether they were delivered."""
    halves_progress: tuple[int, int, int] | None = None
    """Offsets of half and operation topic, to be committed when the log is durable up to there."""

    @staticmethod
    def open(
        config: BrokerConfig,
        disk: Disk,
        store: Store,
        offsets: ConsumerOffsets,
        clock: Clock,
        monotonic: Clock,
        boot: str,
        report: Callable[[object], None],
    ) -> "Delivery":
        """As it was left. `boot` names what `monotonic` counts from. Raises TableMissing."""
        steps = ClockSteps.open(disk, store, clock, monotonic, boot, report)
        return Delivery(
            clock=steps,
            levels=DelayLevels.open(disk, store, steps, clock, report),
            timers=recover_timers(disk, store),
            halves=recover_halves(
                store,
                offsets,
                steps,
                monotonic,
                timeout_ms=int(config.transaction_timeout_s * 1000),
                interval_ms=int(config.transaction_check_interval_s * 1000),
            ),
        )

    def close(self) -> None:
        """Give files back."""
        self.levels.progress.close()
