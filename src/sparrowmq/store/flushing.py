"""Making things durable without stopping the writer: what to sync, and what is true afterwards.

```
begin_flush   names the files; the caller syncs them, in another thread or process
finish_flush  the log is durable up to where it was at begin_flush: the mark says so
```

A checkpoint makes queues and index durable as well, in small portions, so that a sender who waits
for the log never waits for hundreds of other files:

```
due → queue tails written (a portion per tick) → files synced (a portion per flush) → snapshot
```

Where every flush is waited for, the portions are small, but they come: a log whose checkpoint never
ends would have to be scanned as a whole after a crash.
"""

import contextlib
import os
from collections import deque

import msgspec

from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.disk import Disk
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.layout import CHECKPOINT, LOG_DIR, log_path
from sparrowmq.store.marks import MARK, Marks, QueueState, state_of

FILES_AT_ONCE = 32
"""Queue and index files one flush syncs along with the log."""
FILES_BESIDE_WAITERS = 2
"""… and so many when somebody waits for the log, after …"""
PATIENT_FLUSHES = 50
"""… so many flushes in a row that somebody waited for."""
MANY_FILES = 256
"""From so many on they are synced all at once, with everything else on the machine: one by one
they take 1 to 3 ms each. That no error is told does not matter: their CRCs are checked at start."""


class Recovered(msgspec.Struct):
    """What was found at start."""

    end: int = 0
    """Where the log ends."""
    durable: int = 0
    last_record: int = -1
    last_timestamp: int = 0
    checkpointed: int = 0
    """The snapshot's log offset …"""
    states: list[QueueState] = []
    """… and queues …"""
    min_log_offset: int = -1
    """… and where the log began then."""
    scanned_bytes: int = 0
    """How much of the log was read to get here."""


class FlushPlan(msgspec.Struct):
    """Sync these paths, all of them or nothing counts, then call `finish_flush`."""

    files: list[str]
    """Of the log: one that is missing is an error."""
    derived: list[str]
    """Queues, index, snapshots: one that is missing was deleted meanwhile and needs no sync."""
    directories: list[str]
    """Synced after the files; a missing one needs none."""
    log_offset: int
    last_record: int
    store_timestamp: int


def sync_plan(disk: Disk, plan: FlushPlan) -> None:
    """Sync everything in the plan, here and now. Raises OSError for the first that fails."""
    for path in plan.files:
        disk.sync(path)
    if len(plan.derived) > MANY_FILES and disk.real_path("") is not None:
        os.sync()
        return
    for path in plan.derived:
        with contextlib.suppress(FileNotFoundError):
            disk.sync(path)
    for path in plan.directories:
        with contextlib.suppress(FileNotFoundError):
            disk.sync_dir(path)


class Checkpoint(msgspec.Struct):
    """A checkpoint on its way."""

    log_offset: int
    store_timestamp: int
    queues_left: int
    """Dirty queues of the time it began that are not written yet."""
    paths: deque[str] | None = None
    """Files still to be synced; None until all tails are written."""
    directories: list[str] = []
    queues: list[QueueState] = []
    min_log_offset: int = 0

    def is_synced(self, durable: int) -> bool:
        """Whether nothing is left to sync, the log included."""
        return self.paths is not None and not self.paths and durable >= self.log_offset


class Flushing:
    """What is durable, and the work to make it more."""

    def __init__(
        self, config: StoreConfig, disk: Disk, log: CommitLog, dispatch: Dispatch, marks: Marks
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = log
        self._dispatch = dispatch
        self._marks = marks
        self.durable = 0
        self.last_record = -1
        self.last_timestamp = 0
        self._plan: FlushPlan | None = None
        self._checkpoint: Checkpoint | None = None
        self._checkpointed_offset = 0
        self._checkpointed_ms = 0
        self._queue_time = 0
        self._urgent_flushes = 0
        """In a row, since something derived was synced at last."""
        self._unsynced_marks: set[str] = set()
        """Written after the last sync: the next one makes them durable."""
        self._states: list[QueueState] = []
        """What the last snapshot said."""

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: make that durable before anybody is told."""
        self._states = [state for state in self._states if state.topic != topic]
        self._marks.save_snapshot(
            self._checkpointed_offset,
            self._states,
            self._dispatch.dropped,
            min_log_offset=self._log.min_offset,
            sync=True,
        )

    def save_start(self) -> None:
        """From now on the store is not a stopped one; that, and the marks' names, are durable."""
        self._marks.save_snapshot(
            self._checkpointed_offset,
            self._states,
            self._dispatch.dropped,
            min_log_offset=self._log.min_offset,
            sync=True,
        )
        self._marks.save_mark(self.durable, self.last_record, self.last_timestamp)
        self._marks.sync()

    def save_scanned(self) -> None:
        """Make everything durable after a start that had to scan much of the log: who crashes again
        and again must not scan more each time. Thousands of queues would keep senders waiting for
        seconds; they get a checkpoint that begins at once, a portion at a time."""
        dispatch = self._dispatch
        if len(dispatch.files.unsynced) > MANY_FILES:
            self._checkpointed_ms = 0
            return
        dispatch.index.build()
        sync_plan(self._disk, self._last_plan())
        dispatch.files.unsynced.clear()
        dispatch.files.unsynced_dirs.clear()
        while paths := dispatch.index.begin_sync():
            for path in paths:
                self._disk.sync(path)
            dispatch.index.end_sync()
        self.durable = self._checkpointed_offset = self._log.end
        self._states = [state_of(queue) for queue in dispatch.queues.values()]
        self._queue_time = self.last_timestamp
        self._marks.save_checkpoint(
            self.last_timestamp, self._queue_time, dispatch.index.durable_timestamp
        )

    def start(self, now_ms: int, found: Recovered) -> None:
        """Begin with what recovery found."""
        self.durable = found.durable
        self.last_record = found.last_record
        self.last_timestamp = found.last_timestamp
        self._checkpointed_offset = found.checkpointed
        self._states = found.states
        self._checkpointed_ms = now_ms

    def begin_flush(self, *, urgent: bool = False) -> FlushPlan | None:
        """What to sync now; None if nothing is to be done or a flush is under way.

        With `urgent` the log alone: somebody waits.
        """
        if self._plan is not None:
            return None
        end = self._log.end
        files: list[str] = []
        directories: list[str] = []
        if end > self.durable:
            files = [log_path(start) for start in self._log.starts_from(self.durable)]
            if self._log.names_changed:
                self._log.names_changed = False
                directories = [LOG_DIR]
        derived = self._take_derived(directories, urgent=urgent)
        if not files and not derived and not directories:
            return None
        self._plan = FlushPlan(
            files, derived, directories, end, self.last_record, self.last_timestamp
        )
        return self._plan

    def _last_plan(self) -> FlushPlan:
        """Everything that may not be durable, whoever was about to make it so."""
        cancelled, checkpoint, files = self._plan, self._checkpoint, self._dispatch.files
        self._plan = self._checkpoint = None
        plan = self.begin_flush(urgent=True) or FlushPlan([], [], [], 0, 0, 0)
        derived, directories = set(files.unsynced), {LOG_DIR, *files.unsynced_dirs}
        if cancelled is not None:
            derived.update(cancelled.derived)
            directories.update(cancelled.directories)
        if checkpoint is not None:
            derived.update(checkpoint.paths or ())
            directories.update(checkpoint.directories)
        plan.derived, plan.directories = sorted(derived), sorted(directories)
        self._plan = None
        return plan

    def _take_derived(self, directories: list[str], *, urgent: bool) -> list[str]:
        self._urgent_flushes = self._urgent_flushes + 1 if urgent else 0
        if 0 < self._urgent_flushes < PATIENT_FLUSHES:
            return []
        at_once = FILES_BESIDE_WAITERS if urgent else FILES_AT_ONCE
        taken = sorted(self._unsynced_marks)
        self._unsynced_marks.clear()
        checkpoint = self._checkpoint
        if checkpoint is not None and checkpoint.paths is not None:
            directories += checkpoint.directories
            checkpoint.directories = []
            count = len(checkpoint.paths)
            all_at_once = count > MANY_FILES and not urgent
            for _ in range(count if all_at_once else min(at_once, count)):
                taken.append(checkpoint.paths.popleft())
        return taken

    def finish_flush(self, plan: FlushPlan) -> None:
        """Everything in the plan is durable."""
        assert plan is self._plan, "one flush at a time"
        self._plan = None
        if plan.log_offset > self.durable:
            self.durable = plan.log_offset
            self._marks.save_mark(plan.log_offset, plan.last_record, plan.store_timestamp)
            self._unsynced_marks.add(MARK)
        checkpoint = self._checkpoint
        if checkpoint is not None and checkpoint.is_synced(self.durable):
            self._end_checkpoint(checkpoint, plan)

    def _end_checkpoint(self, checkpoint: Checkpoint, plan: FlushPlan) -> None:
        self._dispatch.index.end_sync()
        dropped = self._dispatch.dropped
        self._states = [
            state
            for state in checkpoint.queues
            if dropped.get(state.topic, 0) <= checkpoint.log_offset
        ]
        path = self._marks.save_snapshot(
            checkpoint.log_offset,
            self._states,
            dropped,
            min_log_offset=checkpoint.min_log_offset,
        )
        self._unsynced_marks |= {path, CHECKPOINT}
        self._queue_time = checkpoint.store_timestamp
        self._marks.save_checkpoint(
            plan.store_timestamp, self._queue_time, self._dispatch.index.durable_timestamp
        )
        self._checkpointed_offset = checkpoint.log_offset
        self._checkpoint = None

    def tick(self, now_ms: int, portion: int) -> None:
        """Write a portion of the queues; begin or advance a checkpoint. Raises DiskFull."""
        before = len(self._dispatch.dirty)
        self._dispatch.write_tails(portion)
        written = before - len(self._dispatch.dirty)
        checkpoint = self._checkpoint
        if checkpoint is None:
            if self._is_due(now_ms):
                self._checkpointed_ms = now_ms
                self._checkpoint = Checkpoint(
                    self._log.end, self.last_timestamp, len(self._dispatch.dirty)
                )
        elif checkpoint.paths is None:
            checkpoint.queues_left -= written
            if checkpoint.queues_left <= 0:
                self._collect(checkpoint)

    def _is_due(self, now_ms: int) -> bool:
        grown = self._log.end - self._checkpointed_offset
        if not grown:
            return False
        if now_ms < self._checkpointed_ms:
            self._checkpointed_ms = now_ms  # the clock was set back
        waited = now_ms - self._checkpointed_ms
        return (
            waited >= self._config.checkpoint_interval_ms or grown >= self._config.checkpoint_bytes
        )

    def _collect(self, checkpoint: Checkpoint) -> None:
        files = self._dispatch.files
        self._dispatch.index.build()
        checkpoint.paths = deque([*files.unsynced, *self._dispatch.index.begin_sync()])
        checkpoint.directories = sorted(files.unsynced_dirs)
        files.unsynced.clear()
        files.unsynced_dirs.clear()
        checkpoint.min_log_offset = self._log.min_offset
        checkpoint.queues = [state_of(queue) for queue in self._dispatch.queues.values()]

    def close(self) -> None:
        """Make everything durable, here and now, and mark a normal stop."""
        self._dispatch.write_tails(len(self._dispatch.dirty))
        self._dispatch.index.close()
        sync_plan(self._disk, self._last_plan())
        end = self._log.end
        self.durable = end
        states = [state_of(queue) for queue in self._dispatch.queues.values()]
        self._marks.save_snapshot(
            end,
            states,
            self._dispatch.dropped,
            min_log_offset=self._log.min_offset,
            is_clean=True,
        )
        self._marks.save_mark(end, self.last_record, self.last_timestamp)
        self._marks.save_checkpoint(self.last_timestamp, self.last_timestamp, self.last_timestamp)
        self._marks.sync()
