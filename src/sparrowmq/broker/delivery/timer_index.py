"""When each message of the timer queue is due: the newest in memory, the rest in sorted runs.

```
queue  ──────────────────────────────────────────────►
        run │ run │ run      │ covered     │ queue end
        on disk, sorted      │ in memory   │
```

Ten million pending timers are some 300 runs, with one block of each in memory. After a crash the
runs are resumed where the mark says, and only what lies past `covered` is read from the queue.

A heap alone would be simpler, but it needs memory for every pending timer and must be filled from
the whole queue at each start. Sorted runs need neither: each is written once and read once, in
order, and a start reads only their first blocks.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import Iterable
from heapq import heappush

import msgspec

from sparrowmq.broker.delivery.alarm import Alarm
from sparrowmq.broker.delivery.timer_files import (
    MOST_MARKS,
    RunFiles,
    RunList,
    RunRange,
    TimerCheck,
    TimerMark,
    TimerRun,
)

RUN_ENTRIES = 32_768
"""A run is written from this many entries in memory. More means less work but a longer start."""
_FEW = 4_096
"""Up to this many entries in memory are scanned whenever progress is saved."""
RECALL_WINDOW_MS = 1_001
"""A recall comes at most one slot before its message."""


class TimerIndex:
    """All pending entries, and what has to be saved of them.

    It only decides and does no I/O itself, except for reading blocks of runs: `timer_persistence`
    fills it at the start and writes what it requests.
    """

    def __init__(
        self, files: RunFiles, check: TimerCheck, marks: Iterable[TimerMark], runs: RunList
    ) -> None:
        self.alarm = Alarm()
        self.recalled: dict[str, int] = {}
        """Messages that were recalled, and when each recall was due."""
        self.run_entries = RUN_ENTRIES
        self.files = files
        self.check = check
        self._marks = tuple(marks)
        self.marks = _strongest(self._marks) or (TimerMark(0, 0),)
        """How far delivery is, by falling times. Several only after the clock was set back."""
        self.run_list = runs
        self.list_lock = asyncio.Lock()
        """Held from reading the list until the new one is saved: two at once would lose a run."""
        self.lost_from = sys.maxsize
        """Where the first unreadable run began: its entries are in memory again."""
        self._fresh: list[int] = []
        self._retries: list[int] = []
        self._runs: list[tuple[int, int, TimerRun]] = []
        self._finished: list[RunRange] = []
        self._in_flight: list[int] = []
        self._plan: PlannedSpill | None = None
        self._spilling: Spill | None = None
        self._waiting: TimerProgress | None = None
        self._has_moved = False
        self.is_copy = False
        """Whether this is a slave's index: it does not learn what the master stores, delivers
        nothing, and is read from the queue again when the slave becomes a master."""

    # ---- what is pending

    def add(self, time_ms: int, queue_offset: int, is_recall: bool) -> None:
        """A message was stored in the timer queue."""
        entry = time_ms << 64 | queue_offset
        heappush(self._fresh, entry | RECALL if is_recall else entry)
        if time_ms < self.alarm.planned_ms:
            self.alarm.due_at(time_ms)

    def add_again(self, entry: int) -> None:
        """Make an entry that was taken pending again."""
        heapq.heappush(self._retries, entry)

    def reschedule(self, entry: int) -> None:
        """A taken entry is due later than it said: from now on it belongs to no run."""
        heapq.heappush(self._fresh, entry)
        self.lost_from = min(self.lost_from, offset_of(entry))

    def add_run(self, run: TimerRun) -> None:
        """Add a run, resumed where the mark says."""
        marks = [mark for mark in self._marks if mark.queue_offset >= run.range.end]
        if marks:
            from_ms = max(mark.time_ms for mark in marks) - RECALL_WINDOW_MS
            run.seek(entry_of(max(0, from_ms), 0))
        self.resume_run(run)

    def resume_run(self, run: TimerRun) -> None:
        """Make the next entry of a run pending; a run without more entries is finished."""
        entry = run.next()
        while entry is not None and self.is_done(entry):
            entry = run.next()
        if entry is not None:
            heapq.heappush(self._runs, (entry, run.range.first, run))
        else:
            self._finished.append(run.range)
            self._has_moved = True

    def is_done(self, entry: int) -> bool:
        """Whether a message was delivered before the start; recalls stay valid a little longer."""
        time_ms, offset = time_of(entry), offset_of(entry)
        if is_recall(entry):
            time_ms += RECALL_WINDOW_MS
        return any(mark.covers(time_ms, offset) for mark in self._marks)

    @property
    def next_due_ms(self) -> int | None:
        """When the next entry is due."""
        heads = [heap[0] for heap in (self._fresh, self._retries) if heap]
        if self._runs:
            heads.append(self._runs[0][0])
        return time_of(min(heads)) if heads else None

    @property
    def undelivered(self) -> int:
        """The number of entries that wait or are being delivered."""
        return len(self) + len(self._in_flight)

    def last_due_ms(self) -> int | None:
        """When the last entry is due. Scans all in memory, and reads one entry of each run."""
        ends = [max(heap) for heap in (self._fresh, self._retries, self._in_flight) if heap]
        ends += [max(head, run.last()) for head, _, run in self._runs]
        return time_of(max(ends)) if ends else None

    def delivered_before(self, now_ms: int) -> int:
        """The time before which all due messages are delivered: `now_ms` unless some are late."""
        late = [time_of(entry) for entry in self._in_flight]
        next_ms = self.next_due_ms
        return min([now_ms, *late] if next_ms is None else [now_ms, next_ms, *late])

    @property
    def in_memory(self) -> int:
        """The number of entries that are not in a run yet."""
        return len(self._fresh)

    def take_due(self, now_ms: int, limit: int) -> list[int]:
        """Up to `limit` entries that are due, in order. They are in flight until `batch_done`."""
        end = entry_of(now_ms + 1, 0)
        taken: list[int] = []
        while len(taken) < limit:
            fresh = self._fresh[0] if self._fresh else end
            again = self._retries[0] if self._retries else end
            on_disk = self._runs[0][0] if self._runs else end
            first = min(fresh, again, on_disk)
            if first >= end:
                break
            taken.append(first)
            if first == fresh:
                heapq.heappop(self._fresh)
                if self._plan is not None:
                    self._plan.taken.append(first)
            elif first == again:
                heapq.heappop(self._retries)
            else:
                self.resume_run(heapq.heappop(self._runs)[2])
        self._in_flight = taken
        return taken

    def batch_done(self, queue_end: int, log_end: int) -> None:
        """The entries that were taken have been delivered or added again."""
        self._in_flight = []
        self._note(queue_end, log_end)

    # ---- how far it has come

    def reached(self, time_ms: int, queue_offset: int) -> None:
        """Everything before that offset and due by that time is delivered."""
        mark = TimerMark(time_ms, queue_offset)
        if mark != self.marks[-1]:
            self.marks = _strongest((*self.marks, mark))
            self._has_moved = True

    def _note(self, queue_end: int, log_end: int) -> None:
        """Remember how far delivery has come, to be saved when the log is durable up to here.

        Not while an entry is in flight or will be tried again: the run it came from may be
        finished, and must not be forgotten.
        """
        is_settled = not self._in_flight and not self._retries and not self.is_copy
        if self._waiting is None and self._has_moved and is_settled:
            self._waiting = TimerProgress(
                self.marks, log_end, list(self._finished), self.first_pending(queue_end)
            )
            self._has_moved = False

    def first_pending(self, queue_end: int) -> int:
        """No message before this queue offset is pending; exact while few entries are pending."""
        finished = self._finished
        firsts = [span.first for span in self.run_list.runs if span not in finished]
        if len(self._fresh) > _FEW:
            firsts += [self.run_list.covered, self.lost_from]
        else:
            firsts += map(offset_of, self._fresh)
        if self._spilling is not None:
            firsts.append(self._spilling.span.first)
        taken = map(offset_of, (*self._retries, *self._in_flight))
        return min([*firsts, *taken], default=queue_end)

    def follow(self, marks: Iterable[TimerMark], first_pending: int, log_end: int) -> None:
        """A master has delivered this far. What it delivered lies before `log_end`."""
        known, self.marks = self.marks, _strongest((*self.marks, *marks))
        if self.marks != known:
            self._has_moved = True
        if self._has_moved and self._waiting is None:
            self._waiting = TimerProgress(self.marks, log_end, [], first_pending)
            self._has_moved = False

    def progress_to_save(
        self, queue_end: int, log_end: int, durable_log_offset: int
    ) -> TimerProgress | None:
        """The last noted progress, if everything delivered by then is durable; notes the next."""
        self._note(queue_end, log_end)
        noted = self._waiting
        return noted if noted is not None and noted.log_end <= durable_log_offset else None

    def progress_saved(self) -> None:
        """The progress to save has been saved."""
        self._waiting = None

    def unfinished_runs(self, finished: list[RunRange]) -> RunList:
        """The list without these runs."""
        return RunList(
            self.run_list.covered, [span for span in self.run_list.runs if span not in finished]
        )

    def drop_runs(self, finished: list[RunRange], left: RunList) -> None:
        """A list without these runs has been saved: `left`."""
        self.run_list = left
        self._finished = [span for span in self._finished if span not in finished]

    # ---- from memory to disk

    def wants_to_spill(self, queue_end: int) -> bool:
        """Whether memory holds enough for a run, or the next start would have much to read."""
        return (
            self._plan is not None
            or self.in_memory >= self.run_entries
            or queue_end - self.run_list.covered >= 2 * self.run_entries
        )

    def begin_spill(self, queue_end: int, log_end: int, durable_log_offset: int) -> Spill | None:
        """A run, taken out of memory, once there is enough for one and it is durable in the log.

        Otherwise a power cut could leave entries of messages that no longer exist.
        """
        if not self.wants_to_spill(queue_end):
            return None
        if self._plan is None:
            self._plan = PlannedSpill(queue_end, log_end)
        plan = self._plan
        if plan.log_end > durable_log_offset:
            return None
        entries = sorted(entry for entry in self._fresh if offset_of(entry) < plan.queue_end)
        self._fresh = [entry for entry in self._fresh if offset_of(entry) >= plan.queue_end]
        heapq.heapify(self._fresh)
        self._plan = None
        self._spilling = Spill(self._next_range(plan.queue_end), sorted(plan.taken), entries)
        return self._spilling

    def _next_range(self, end: int) -> RunRange:
        """A range for all entries in memory. Corrections may make it begin where another does."""
        first = min(self.run_list.covered, self.lost_from)
        copies = [span.copy for span in self.run_list.runs if span.first == first]
        return RunRange(first, end, max(copies, default=-1) + 1)

    def cancel_spill(self, spill: Spill) -> None:
        """The run could not be written: its entries are in memory again."""
        self._fresh += spill.entries
        heapq.heapify(self._fresh)
        self._spilling = None

    def finish_spill(self, runs: RunList) -> None:
        """The run is written, and `runs` is the valid list from now on."""
        self.run_list = runs
        self.lost_from = sys.maxsize
        self._spilling = None

    # ---- all of them

    def pending(self) -> list[int]:
        """All entries that have not been taken, unordered."""
        on_disk = [entry for head, _, run in self._runs for entry in (head, *run.rest())]
        return self._fresh + self._retries + on_disk

    def __len__(self) -> int:
        """Entries that have not been taken."""
        on_disk = sum(run.left + 1 for _, _, run in self._runs)  # the first of each is read
        return len(self._fresh) + len(self._retries) + on_disk


def _strongest(marks: Iterable[TimerMark]) -> tuple[TimerMark, ...]:
    """Marks without those that another mark implies, by rising offsets and falling times."""
    telling: list[TimerMark] = []
    for mark in sorted(marks, key=lambda mark: (mark.queue_offset, mark.time_ms)):
        while telling and telling[-1].time_ms <= mark.time_ms:
            telling.pop()
        telling.append(mark)
    return tuple(telling[-MOST_MARKS:])


# ---- what the index requests to be written


class PlannedSpill(msgspec.Struct):
    """A run to be written as soon as the log is durable up to `log_end`."""

    queue_end: int
    log_end: int
    taken: list[int] = msgspec.field(default_factory=list)
    """Entries of this run that became due meanwhile."""


class Spill(msgspec.Struct):
    """A run to be written now."""

    span: RunRange
    delivered: list[int]
    """Its entries that were delivered since it was planned, sorted.

    The deliveries may not be durable: after a crash they are due again.
    """
    entries: list[int]
    """The other entries, sorted; they are no longer in memory."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write except how far the queue is covered."""
        return not self.delivered and not self.entries


class TimerProgress(msgspec.Struct):
    """What may be saved as soon as the log is durable up to `log_end`."""

    marks: tuple[TimerMark, ...]
    log_end: int
    finished: list[RunRange]
    first_pending: int


# ---- entries of the timer queue as whole numbers: time in the upper, offset in the lower 64 bits
#
# They sort by time. The highest bit of the offset says that an entry is a recall.


RECALL = 1 << 63
_OFFSET = RECALL - 1


def entry_of(time_ms: int, queue_offset: int, *, is_recall: bool = False) -> int:
    """An entry as one number that sorts by time."""
    return time_ms << 64 | (RECALL if is_recall else 0) | queue_offset


def time_of(entry: int) -> int:
    """When an entry is due."""
    return entry >> 64


def offset_of(entry: int) -> int:
    """The offset of its message in the timer queue."""
    return entry & _OFFSET


def is_recall(entry: int) -> bool:
    """Whether it recalls a message rather than delivering one."""
    return bool(entry & RECALL)
