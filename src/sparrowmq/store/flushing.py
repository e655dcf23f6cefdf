"""Making things durable without stopping the writer: what to sync, and what holds afterwards.

```
begin_flush   names the files; the caller syncs them in another thread or process
finish_flush  the log is durable up to its end at begin_flush: the mark records that
```

The writer never waits: `begin_flush` notes where the log ends, and anything appended while the sync
runs belongs to the next flush. One flush at a time is enough, because each covers everything before
it, and the mark must not claim more than the last completed sync.

A checkpoint makes queues and index durable as well, in small portions, so that a sender waiting for
the log never waits for hundreds of other files.
"""

from collections.abc import Callable, Collection

import msgspec

from sparrowmq.clock import Clock
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import MANY_FILES, SyncPlan, sync_plan
from sparrowmq.store.checkpoints import Checkpoints
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import MARK, Marks, QueueState, state_of
from sparrowmq.store.layout import LOG_DIR, log_path
from sparrowmq.store.recovery.quarantine import DamagedPlace

FILES_AT_ONCE = 32
"""Queue and index files that one flush syncs along with the log."""
FILES_BESIDE_WAITERS = 2
"""… and how many while senders wait for the log, but none before …"""
PATIENT_FLUSHES = 50
"""… this many flushes in a row had waiting senders; each flush after that syncs some if …"""
FILES_IN_A_HURRY = 16
"""… this many files are left: two per fifty flushes would never finish the checkpoint."""


class Recovered(msgspec.Struct):
    """What recovery found at start."""

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
    """How much of the log recovery read …"""
    scanned_records: int = 0
    """… and how many records that were."""
    cut_bytes: int = 0
    """Bytes past the end of the log: a torn tail, or files that cannot be used."""
    rebuilt_queues: int = 0
    """Queues that were rebuilt from the log alone."""
    filled: list[DamagedPlace] = []
    """Where messages are missing that were damaged, at this start or before."""
    was_running: bool = False
    """The store was not closed …"""
    was_foreign: bool = False
    """… and another release or another broker had it open last."""


class FlushPlan(SyncPlan):
    """Paths to sync; call `finish_flush` only if all of them succeed."""

    log_offset: int
    last_record: int
    store_timestamp: int
    grown: list[tuple[ConsumeQueue, int]] = msgspec.field(default_factory=list)
    """Queues, and where they end in this part of the log."""


class Flushing:
    """What is durable, and the work to make it more."""

    def __init__(
        self, config: StoreConfig, disk: Disk, log: CommitLog, dispatch: Dispatch, marks: Marks
    ) -> None:
        self._disk = disk
        self._log = log
        self._dispatch = dispatch
        self._marks = marks
        self._window = config.unsynced_window
        self._is_shown_by_owner = config.is_shown_by_owner
        self._checkpoints = Checkpoints(config, log, dispatch, marks)
        self.durable = 0
        """Log records before this offset survive a power cut."""
        self._plan: FlushPlan | None = None
        self._urgent_flushes = 0
        """Urgent flushes in a row since derived files were last synced."""
        self._unsynced_marks: set[str] = set()
        """Written after the last sync: the next one makes them durable."""

    def forget_topics(self, topics: Collection[str]) -> Callable[[], None]:
        """Topics were deleted; returns what makes that durable, which may be called in another
        thread. That is to be done before the deletion is reported."""
        self._checkpoints.forget_topics(topics)
        return self._checkpoints.saving()

    def save_start(self) -> None:
        """Durably record that the store is open, along with the marks' file names."""
        self._checkpoints.save()
        self._marks.save_mark(self.durable, self._log.last_record, self._log.last_timestamp)
        self._marks.sync()

    def save_scanned(self) -> None:
        """Make everything durable after a start that scanned much of the log: a store that crashes
        repeatedly must not scan more each time. Thousands of queues would keep senders waiting for
        seconds; for them a checkpoint begins at once, one portion at a time."""
        dispatch = self._dispatch
        if len(dispatch.files.unsynced) > MANY_FILES:
            self._checkpoints.hurry()
            return
        dispatch.index.build()
        sync_plan(self._disk, self._last_plan())
        dispatch.files.unsynced.clear()
        dispatch.files.unsynced_dirs.clear()
        while plan := dispatch.index.begin_sync():
            sync_plan(self._disk, plan)
            dispatch.index.end_sync()
        self.durable = self._log.end
        self._checkpoints.complete()

    def sync_recovered(self) -> None:
        """Make the log durable as found, so that all that is read now stays. Raises OSError."""
        if self.durable < self._log.end:
            for start in self._log.starts_from(self.durable):
                self._disk.sync(log_path(start))
            self._disk.sync_dir(LOG_DIR)
            self.durable = self._log.end
        self._dispatch.take_unsynced()
        for queue in self._dispatch.queues.values():
            queue.durable_to = queue.max_offset

    def start(self, now_ms: int, found: Recovered) -> None:
        """Begin with what recovery found."""
        self.durable = found.durable
        self._checkpoints.start(now_ms, found.checkpointed, found.states, found.min_log_offset)

    def begin_flush(self, *, urgent: bool = False) -> FlushPlan | None:
        """What to sync now; None if there is nothing to do or a flush is under way.

        With `urgent` the log alone: senders wait.
        """
        if self._plan is not None:
            return None
        log = self._log
        end = log.end
        files: list[str] = []
        directories: list[str] = []
        grown: list[tuple[ConsumeQueue, int]] = []
        if end > self.durable:
            if not self._is_shown_by_owner:
                grown = self._dispatch.take_unsynced()
            files = [log_path(start) for start in log.starts_from(self.durable)]
            if log.names_changed:
                log.names_changed = False
                directories = [LOG_DIR]
        derived = self._take_derived(directories, urgent=urgent)
        if not files and not derived and not directories:
            return None
        self._plan = FlushPlan(
            files, derived, directories, end, log.last_record, log.last_timestamp, grown
        )
        return self._plan

    def _last_plan(self) -> FlushPlan:
        """Everything that may not be durable, including what a cancelled flush was to sync."""
        cancelled, files = self._plan, self._dispatch.files
        left, left_directories = self._checkpoints.abandon()
        self._plan = None
        plan = self.begin_flush(urgent=True) or FlushPlan([], [], [], 0, 0, 0)
        derived = {*files.unsynced, *left}
        directories = {LOG_DIR, *files.unsynced_dirs, *left_directories}
        if cancelled is not None:
            derived.update(cancelled.derived)
            directories.update(cancelled.directories)
        plan.derived, plan.directories = sorted(derived), sorted(directories)
        self._plan = None
        return plan

    def _take_derived(self, directories: list[str], *, urgent: bool) -> list[str]:
        self._urgent_flushes = self._urgent_flushes + 1 if urgent else 0
        if 0 < self._urgent_flushes < PATIENT_FLUSHES:
            return []
        if self._checkpoints.files_left < FILES_IN_A_HURRY:
            self._urgent_flushes = 0
        at_once = FILES_BESIDE_WAITERS if urgent else FILES_AT_ONCE
        taken = sorted(self._unsynced_marks)
        self._unsynced_marks.clear()
        files, named = self._checkpoints.take(at_once, None if urgent else MANY_FILES)
        directories += named
        return taken + files

    def finish_flush(self, plan: FlushPlan) -> list[ConsumeQueue]:
        """Note that the whole plan is durable; returns the queues readers see more of now."""
        assert plan is self._plan, "one flush at a time"
        self._plan = None
        shown = []
        for queue, end in plan.grown:
            if queue.max_offset - queue.durable_to > self._window:
                shown.append(queue)
            queue.durable_to = end
        if plan.log_offset > self.durable:
            self.durable = plan.log_offset
            self._marks.save_mark(plan.log_offset, plan.last_record, plan.store_timestamp)
            self._unsynced_marks.add(MARK)
        self._unsynced_marks |= self._checkpoints.finish(self.durable, plan.store_timestamp)
        return shown

    def tick(self, now_ms: int, portion: int, monotonic: Clock | None = None) -> None:
        """Write a portion of the queues; begin or advance a checkpoint. Raises DiskFull."""
        self._checkpoints.tick(now_ms, portion, monotonic)

    def close(self) -> None:
        """Make everything durable before returning, and mark a normal stop."""
        self._dispatch.write_tails()
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
        last_timestamp = self._log.last_timestamp
        self._marks.save_mark(end, self._log.last_record, last_timestamp)
        self._marks.save_checkpoint(last_timestamp, last_timestamp, last_timestamp)
        self._marks.sync()
