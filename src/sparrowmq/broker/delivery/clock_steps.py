"""By how much the clock was set, and which messages were stored before each step.

```
log     ──────────────┬───────────────────┬──────────────►
        stored by the │  by a clock set   │ set back by a minute
        first clock   │  forward by 1 h   │
since:     +59 min    │      -1 min       │  0
```

Messages that wait in the store carry their due time as a time of day. A delay is a length of time,
though, and setting the clock must not change it: a message is due at its due time plus everything
by which the clock was set forward since it was stored. The monotonic clock distinguishes a step
from time that passed: the difference between the clocks changes only when one of them is set.

A step is saved (`config/clockSteps.json`) before any waiting message is stored by the new time, so
that it counts after a restart as well: requests that would store one wait until `is_saved`, and
loops for `saved_now_ms`. Steps whose messages have all left the log are forgotten. A step between
two runs of the broker is noticed at the start, because the monotonic clock keeps running until the
machine is switched off. After a reboot only a clock that was set back can be noticed, by messages
that were stored in the future.

A slave takes over the steps of its master: what waits in their log carries the times of that clock.
Steps of its own clock count while it follows no master.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec.structs import replace

from sparrowmq.broker.delivery.alarm import Alarm
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.clock import Clock
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import Record
from sparrowmq.store.store import Store
from sparrowmq.store.table_file import TableFile, TableMissing

_NOTICED_MS = 10
"""Linux slews both clocks alike, so any difference is a step; up to this much may be rounding, or
the time between reading one and the other."""
_TOGETHER_MS = 2
_LOOKS = 10
_MOST_STEPS = 10_000


class ClockStep(Body, frozen=True, kw_only=True):
    """The clock was set by `by_ms`, forward or back; records from `log_offset` on came later."""

    log_offset: int
    by_ms: int


class _Table(Body, frozen=True, kw_only=True):
    steps: tuple[ClockStep, ...] = ()
    boot: str = ""
    """What the monotonic clock counted from, and how far the time of day was ahead of it."""
    ahead_ms: int = 0


def _decode(data: bytes) -> _Table:
    try:
        return _Table.from_json(data)
    except BodyError as error:
        raise ValueError(str(error)) from error


class ClockSteps:
    """The clock as delivery reads it: every reading checks whether it was set."""

    def __init__(
        self,
        store: Store,
        file: TableFile[_Table],
        saving: TableSaving,
        steps: tuple[ClockStep, ...],
        clock: Clock,
        monotonic: Clock,
        boot: str,
        report: Callable[[object], None],
    ) -> None:
        self._store = store
        self._boot = boot
        self._saving = saving
        self.file = file
        self.is_saved = True
        """Whether a step would still be known after a crash. Until it is, no waiting message may be
        stored."""
        self._clock = clock
        self._monotonic = monotonic
        self._report = report
        self.alarms: list[Alarm] = []
        """Alarms of loops to wake after a step: their plans are based on the old clock."""
        self._ahead_ms = clock() - monotonic()
        self._set(steps)

    @staticmethod
    def open(
        disk: Disk,
        store: Store,
        saving: TableSaving,
        clock: Clock,
        monotonic: Clock,
        boot: str,
        report: Callable[[object], None],
    ) -> "ClockSteps":
        """Open with the steps noticed before the last stop, and any that can be detected since.

        `boot` names what `monotonic` counts from; empty if unknown. Raises DiskFull, OSError.
        """
        file = TableFile(disk, "clockSteps.json", _decode)
        try:
            table = file.load(report, store_is_used=True, may_be_missing=True) or _Table()
        except TableMissing:
            report(f"{file.path} is damaged: delays that wait go by the clock alone")
            table = _Table()
        # A power cut may have taken the end of the log: new records are stored after the step.
        end = store.max_log_offset
        kept = tuple(replace(step, log_offset=min(step.log_offset, end)) for step in table.steps)
        steps = ClockSteps(store, file, saving, kept, clock, monotonic, boot, report)
        if boot and boot == table.boot:
            by_ms = steps._ahead_ms - table.ahead_ms
        else:
            by_ms = steps._set_back_while_off()
        if abs(by_ms) >= _NOTICED_MS:
            steps._add(by_ms)
        try:
            file.save(steps.table().to_json())
        except (DiskFull, OSError) as error:
            report(f"steps of the clock are not saved and count until a restart: {error}")
        return steps

    def _set_back_while_off(self) -> int:
        """By how much at least the clock was set back while the machine was off: a message of a
        delay level must not have been stored in the future.

        The time that passed is not known. So pending delays are prolonged by that time, which is
        less than the step. A clock that was set forward looks like a machine that was off for
        longer, and is believed.
        """
        store, latest_ms = self._store, 0
        for level in range(1, len(store.config.delay_levels_ms) + 1):
            queue_id = schedule_queue_id(level)
            end = store.max_offset(SCHEDULE_TOPIC, queue_id)
            for log_offset, _, _ in store.units(SCHEDULE_TOPIC, queue_id, end - 1, 1):
                record = store.read_record(log_offset)
                if record is not None:
                    stored_ms = record.store_timestamp + self.since(log_offset)
                    latest_ms = max(latest_ms, stored_ms)
        return min(0, self._clock() - latest_ms)

    def now_ms(self) -> int:
        """The time of day, after checking whether the clock was set."""
        now_ms = self._clock()
        if not -_NOTICED_MS < now_ms - self._monotonic() - self._ahead_ms < _NOTICED_MS:
            now_ms = self._measure_step(now_ms)
        return now_ms

    async def saved_now_ms(self) -> int:
        """The same, once any step that it shows is saved. Raises DiskFull, OSError."""
        now_ms = self.now_ms()
        while not self.is_saved:
            await self._saving.saved(self)
            now_ms = self.now_ms()
        return now_ms

    def _measure_step(self, now_ms: int) -> int:
        """Read both clocks again: a process held up between two readings sees a false step."""
        for _ in range(_LOOKS):
            before_ms = self._monotonic()
            now_ms = self._clock()
            if self._monotonic() - before_ms <= _TOGETHER_MS:
                by_ms = now_ms - before_ms - self._ahead_ms
                if abs(by_ms) >= _NOTICED_MS:
                    self._ahead_ms += by_ms
                    self._add(by_ms)
                    self.is_saved = False
                    self._saving.changed(self)
                break
        return now_ms

    @property
    def was_set(self) -> bool:
        """Whether the clock was set since some record that the log still holds was stored."""
        return bool(self._steps)

    def since(self, log_offset: int) -> int:
        """By how much in total the clock was set forward since this record was stored."""
        if not self._offsets:
            return 0
        return self._sums[bisect_right(self._offsets, log_offset)]

    def age_ms(self, record: Record) -> int:
        """How long ago a record was stored."""
        return self.now_ms() - record.store_timestamp - self.since(record.log_offset)

    @property
    def steps(self) -> tuple[ClockStep, ...]:
        """The steps known so far, oldest first."""
        return self._steps

    def follow(self, steps: Sequence[ClockStep]) -> None:
        """Know exactly the steps of a master's clock. They are saved soon, like a master's."""
        copied = tuple(steps[-_MOST_STEPS:])
        if copied != self._steps:
            self._set(copied)
            self._saving.changed(self)

    def _add(self, by_ms: int) -> None:
        low = self._store.min_log_offset
        known = [step for step in self._steps if step.log_offset > low]
        step = ClockStep(log_offset=self._store.max_log_offset, by_ms=by_ms)
        self._set((*known[-_MOST_STEPS + 1 :], step))
        self._report(f"the clock was set {'forward' if by_ms > 0 else 'back'} by {abs(by_ms)} ms")
        for alarm in self.alarms:
            alarm.due_at(0)

    def _set(self, steps: tuple[ClockStep, ...]) -> None:
        self._steps = steps
        self._offsets = [step.log_offset for step in steps]
        later = list(accumulate((step.by_ms for step in reversed(steps)), initial=0))
        self._sums = later[::-1]

    # ---- as a saved table

    def table(self) -> _Table:
        """The steps so far, and what a later start needs to notice one."""
        return _Table(steps=self._steps, boot=self._boot, ahead_ms=self._ahead_ms)

    def was_saved(self, table: _Table) -> None:
        """What `table` returned before is durable."""
        self.is_saved = table.steps is self._steps
