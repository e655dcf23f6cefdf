"""The delay levels: how far the queue of each has been delivered."""

from collections.abc import Callable, Mapping

from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.delivery.delay_alarm import Alarm
from sparrowmq.broker.delivery.delay_progress import DelayProgress
from sparrowmq.clock import Clock
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.store.disk import Disk
from sparrowmq.store.errors import DiskFull
from sparrowmq.store.store import Store


class DelayLevels:
    """Within a level messages become due in the order they came, so one offset says it all."""

    def __init__(
        self, offsets: Mapping[int, int], progress: DelayProgress, clock: ClockSteps
    ) -> None:
        self.offsets = dict(offsets)
        """Level → queue offset of the next message to deliver."""
        self.progress = progress
        self.alarm = Alarm()
        self._clock = clock
        clock.alarms.append(self.alarm)

    @staticmethod
    def open(
        disk: Disk, store: Store, steps: ClockSteps, clock: Clock, report: Callable[[object], None]
    ) -> "DelayLevels":
        """With the progress last saved. Raises TableMissing when it is lost and matters."""
        highest = len(store.config.delay_levels_ms)
        progress = DelayProgress(disk, report, clock)
        never_used = all(
            store.max_offset(SCHEDULE_TOPIC, queue_id) == 0 for queue_id in range(highest)
        )
        saved = progress.load(store_is_used=store.max_log_offset > 0, may_be_missing=never_used)
        offsets = {level: saved.get(level, 0) for level in range(1, highest + 1)}
        levels = DelayLevels(offsets, progress, steps)
        for level in levels.offsets:
            # Now: the next message may take the very offset that was noted as delivered.
            levels.clamp(level, store)
        if any(levels.offsets[level] < offset for level, offset in offsets.items()):
            try:
                progress.lower(levels.offsets)
            except DiskFull as error:
                report(f"delays may be lost if the broker is killed before there is space: {error}")
        return levels

    def clamp(self, level: int, store: Store) -> tuple[int, int]:
        """The next offset of a level, moved into what its queue holds, and the queue's end."""
        low, high = store.queue_range(SCHEDULE_TOPIC, schedule_queue_id(level))
        offset = min(max(self.offsets[level], low), high)
        self.offsets[level] = offset
        return offset, high

    def due_ms(self, log_offset: int, unit_ms: int) -> int:
        """When a message is due whose unit says `unit_ms`: its delay after it was stored.

        That keeps their order: by the units alone, those stored before the clock was set back
        would hold up those stored after it.
        """
        return unit_ms + self._clock.since(log_offset)

    def waiting(self, store: Store) -> int:
        """How many messages wait in all levels."""
        return sum(
            max(0, store.max_offset(SCHEDULE_TOPIC, schedule_queue_id(level)) - offset)
            for level, offset in self.offsets.items()
        )
