"""Which message of the timer queue is due when: the newest in memory, the rest in sorted runs.

```
queue  ──────────────────────────────────────────────►
        run │ run │ run      │ covered     │ queue end
        on disk, sorted      │ in memory   │
```

Ten million pending timers are some 300 runs of which a block each is in memory. After a crash the
runs are taken up where the mark says, and only what is behind `covered` is read from the queue.
"""

import heapq
import sys
from collections.abc import Iterable

from sparrowmq.broker.delay_alarm import Alarm
from sparrowmq.broker.timer_check import TimerCheck, TimerMark
from sparrowmq.broker.timer_runs import Run, RunFiles, RunList, RunRange
from sparrowmq.net.workers import Workers
from sparrowmq.store.errors import DiskFull

RUN_ENTRIES = 32_768
"""Entries in memory from which a run is written. More means less work and a longer start."""
RECALL_WINDOW_MS = 1_001
"""A recall comes at most a slot before its message."""
_RECALL = 1 << 63
_OFFSET = _RECALL - 1


def entry_of(time_ms: int, queue_offset: int, *, is_recall: bool = False) -> int:
    """An entry as one number that sorts by time."""
    return time_ms << 64 | (_RECALL if is_recall else 0) | queue_offset


def time_of(entry: int) -> int:
    """When an entry is due."""
    return entry >> 64


def offset_of(entry: int) -> int:
    """Where its message lies in the timer queue."""
    return entry & _OFFSET


def is_recall(entry: int) -> bool:
    """Whether it takes a message back rather than delivering one."""
    return bool(entry & _RECALL)


class TimerIndex:
    """All pending entries. `timer_recovery` fills it at start."""

    def __init__(
        self, files: RunFiles, check: TimerCheck, marks: Iterable[TimerMark], runs: RunList
    ) -> None:
        self.alarm = Alarm()
        self.recalled: dict[str, int] = {}
        """Messages that were taken back, and when the word for it was due."""
        self.run_entries = RUN_ENTRIES
        self._files = files
        self._check = check
        self._marks = tuple(marks)
        self.mark = max(self._marks, default=TimerMark(0, 0))
        self.list = runs
        self.lost_from = sys.maxsize
        """Where the first run began that could not be read: its entries are in memory again."""
        self._fresh: list[int] = []
        self._again: list[int] = []
        self._runs: list[tuple[int, int, Run]] = []
        self._finished: list[RunRange] = []
        self._plan: tuple[int, int] | None = None
        self._waiting: tuple[TimerMark, int, list[RunRange]] | None = None
        self._has_moved = False

    # ---- what is pending

    def add(self, time_ms: int, queue_offset: int, is_recall: bool) -> None:
        """A message was stored in the timer queue."""
        entry = time_ms << 64 | queue_offset
        heapq.heappush(self._fresh, entry | _RECALL if is_recall else entry)
        self.alarm.due_at(time_ms)

    def add_again(self, entry: int) -> None:
        """An entry that was taken has to be looked at again."""
        heapq.heappush(self._again, entry)

    def add_run(self, run: Run) -> None:
        """Take a run up where the mark says."""
        marks = [mark for mark in self._marks if mark.queue_offset >= run.range.end]
        if marks:
            from_ms = max(mark.time_ms for mark in marks) - RECALL_WINDOW_MS
            run.seek(entry_of(max(0, from_ms), 0))
        self._push(run)

    def _push(self, run: Run) -> None:
        entry = run.next()
        while entry is not None and self.is_done(entry):
            entry = run.next()
        if entry is not None:
            heapq.heappush(self._runs, (entry, run.range.first, run))
        else:
            self._finished.append(run.range)
            self._has_moved = True

    def is_done(self, entry: int) -> bool:
        """Whether a message was delivered before the start; recalls count a little longer."""
        time_ms, offset = time_of(entry), offset_of(entry)
        if is_recall(entry):
            time_ms += RECALL_WINDOW_MS
        return any(mark.covers(time_ms, offset) for mark in self._marks)

    @property
    def next_due_ms(self) -> int | None:
        """When the next entry is due."""
        heads = [heap[0] for heap in (self._fresh, self._again) if heap]
        if self._runs:
            heads.append(self._runs[0][0])
        return time_of(min(heads)) if heads else None

    def take_due(self, now_ms: int, limit: int) -> list[int]:
        """Up to `limit` entries that are due, in order."""
        end = entry_of(now_ms + 1, 0)
        taken: list[int] = []
        while len(taken) < limit:
            fresh = self._fresh[0] if self._fresh else end
            again = self._again[0] if self._again else end
            on_disk = self._runs[0][0] if self._runs else end
            first = min(fresh, again, on_disk)
            if first >= end:
                break
            taken.append(first)
            if first == fresh:
                heapq.heappop(self._fresh)
            elif first == again:
                heapq.heappop(self._again)
            else:
                self._push(heapq.heappop(self._runs)[2])
        return taken

    # ---- how far it has come

    def reached(self, time_ms: int, queue_offset: int) -> None:
        """Everything due by that time is delivered, of what lies before that offset."""
        if time_ms >= self.mark.time_ms:
            self.mark = TimerMark(time_ms, max(queue_offset, self.mark.queue_offset))
            self._has_moved = True

    async def save(self, log_end: int, durable_log_offset: int, workers: Workers) -> None:
        """Save the mark noted before if everything delivered by then is durable; note the next.

        Raises DiskFull, having lost nothing.
        """
        if self._waiting is None and self._has_moved:
            self._waiting = (self.mark, log_end, list(self._finished))
            self._has_moved = False
        if self._waiting is None or self._waiting[1] > durable_log_offset:
            return
        mark, _, finished = self._waiting
        await workers.run(self._check.save, mark, self._first_pending(finished))
        self._waiting = None
        if finished:
            await self._forget(finished, workers)

    def _first_pending(self, finished: list[RunRange]) -> int:
        firsts = [span.first for span in self.list.runs if span not in finished]
        return min([self.list.covered, self.lost_from, *firsts])

    async def _forget(self, finished: list[RunRange], workers: Workers) -> None:
        left = [span for span in self.list.runs if span not in finished]
        runs = RunList(self.list.covered, left)
        await workers.run(self._files.save_list, runs)
        self.list = runs
        self._finished = [span for span in self._finished if span not in finished]
        for span in finished:
            await workers.run(self._files.remove, span)

    # ---- from memory to disk

    @property
    def wants_to_spill(self) -> bool:
        """Whether there is enough in memory to write a run."""
        return self._plan is not None or len(self._fresh) >= self.run_entries

    async def spill(
        self, queue_end: int, log_end: int, durable_log_offset: int, workers: Workers
    ) -> None:
        """Write a run when there is enough for one and all of it is durable in the log.

        Sooner, a power cut could leave entries of messages that are not there any more.
        Raises DiskFull, having lost nothing.
        """
        if not self.wants_to_spill:
            return
        if self._plan is None:
            self._plan = (queue_end, log_end)
        end, needed = self._plan
        if needed > durable_log_offset:
            return
        entries = sorted(entry for entry in self._fresh if offset_of(entry) < end)
        self._fresh = [entry for entry in self._fresh if offset_of(entry) >= end]
        heapq.heapify(self._fresh)
        self._plan = None
        span = RunRange(min(self.list.covered, self.lost_from), end)
        runs = RunList(end, [*self.list.runs, span])
        try:
            await workers.run(self._files.write, span, entries)
            await workers.run(self._files.save_list, runs)
        except DiskFull:
            self._fresh += entries
            heapq.heapify(self._fresh)
            raise
        self.list = runs
        self.lost_from = sys.maxsize
        run = self._files.open(span, check=False)
        assert run is not None, "just written"
        self._push(run)

    def __len__(self) -> int:
        """Entries that have not been taken."""
        on_disk = sum(run.left + 1 for _, _, run in self._runs)  # the first of each is read
        return len(self._fresh) + len(self._again) + on_disk
