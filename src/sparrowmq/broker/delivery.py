"""The state of everything that is delivered later than it was sent."""

from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.broker.delay_levels import DelayLevels
from sparrowmq.clock import Clock
from sparrowmq.store.disk import Disk
from sparrowmq.store.store import Store


@dataclass(slots=True, kw_only=True)
class Delivery:
    """What waits, and how far delivery has come."""

    levels: DelayLevels

    @staticmethod
    def open(
        disk: Disk, store: Store, clock: Clock, report: Callable[[object], None]
    ) -> "Delivery":
        """As it was left. Raises TableMissing."""
        return Delivery(levels=DelayLevels.open(disk, store, clock, report))

    def close(self) -> None:
        """Give files back."""
        self.levels.progress.close()
