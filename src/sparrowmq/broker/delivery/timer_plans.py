"""What the timer index wants to have written: a run of its entries, or how far it has come."""

import msgspec

from sparrowmq.broker.delivery.timer_check import TimerMark
from sparrowmq.broker.delivery.timer_runs import RunRange


class SpillPlan(msgspec.Struct):
    """A run that is to be written as soon as the log is durable up to `log_end`."""

    queue_end: int
    log_end: int
    taken: list[int] = msgspec.field(default_factory=list)
    """Entries for it that became due meanwhile."""


class Spill(msgspec.Struct):
    """A run that is to be written now."""

    span: RunRange
    delivered: list[int]
    """Entries of it that were delivered since it was planned, sorted.

    Perhaps not durably: after a crash they are due again.
    """
    entries: list[int]
    """The others, sorted; they are in memory no more."""

    @property
    def is_empty(self) -> bool:
        """There is nothing to write but how far the queue is covered."""
        return not self.delivered and not self.entries


class Progress(msgspec.Struct):
    """What may be saved as soon as the log is durable up to `log_end`."""

    marks: tuple[TimerMark, ...]
    log_end: int
    finished: list[RunRange]
    first_pending: int
