"""The delay levels: how far the queue of each has been delivered."""

from collections.abc import Callable, Mapping, Sequence

from sparrowmq.broker.delivery.delay_alarm import Alarm
from sparrowmq.broker.delivery.delay_progress import DelayProgress
from sparrowmq.clock import Clock
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.store.disk import Disk
from sparrowmq.store.store import Store


class DelayLevels:
    """Within a level messages become due in the order they came, so one offset says it all."""

    def __init__(
        self, delays_ms: Sequence[int], offsets: Mapping[int, int], progress: DelayProgress
    ) -> None:
        self.delays_ms = delays_ms
        self.offsets = {level: offsets.get(level, 0) for level in range(1, len(delays_ms) + 1)}
        """Level → queue offset of the next message to deliver."""
        self.progress = progress
        self.alarm = Alarm()
        self._corrected: dict[int, tuple[int, int]] = {}

    @staticmethod
    def open(
        disk: Disk, store: Store, clock: Clock, report: Callable[[object], None]
    ) -> "DelayLevels":
        """With the progress last saved. Raises TableMissing when it is lost and matters."""
        delays_ms = store.config.delay_levels_ms
        progress = DelayProgress(disk, report, clock)
        never_used = all(
            store.max_offset(SCHEDULE_TOPIC, queue_id) == 0 for queue_id in range(len(delays_ms))
        )
        offsets = progress.load(store_is_used=store.max_log_offset > 0, may_be_missing=never_used)
        levels = DelayLevels(delays_ms, offsets, progress)
        for level in levels.offsets:
            # Now: the next message may take the very offset that was noted as delivered.
            levels.clamp(level, store)
        return levels

    def clamp(self, level: int, store: Store) -> tuple[int, int]:
        """The next offset of a level, moved into what its queue holds, and the queue's end."""
        low, high = store.queue_range(SCHEDULE_TOPIC, schedule_queue_id(level))
        offset = min(max(self.offsets[level], low), high)
        self.offsets[level] = offset
        return offset, high

    def due_ms(self, level: int, offset: int, unit_ms: int, now_ms: int) -> int:
        """When a message is due whose unit says `unit_ms`.

        Nobody waits longer than the level's delay: a unit that says so was written before the
        clock was set back, and its delay counts from when it is first seen.
        """
        latest_ms = now_ms + self.delays_ms[level - 1]
        if unit_ms <= latest_ms:
            return unit_ms
        known = self._corrected.get(level)
        if known is None or known[0] != offset:
            known = self._corrected[level] = (offset, latest_ms)
        return min(known[1], latest_ms)

    def waiting(self, store: Store) -> int:
        """How many messages wait in all levels."""
        return sum(
            max(0, store.max_offset(SCHEDULE_TOPIC, schedule_queue_id(level)) - offset)
            for level, offset in self.offsets.items()
        )
