"""Checkpoints: making queues and index durable a portion at a time, then writing a snapshot.

```
due → queue tails written (a portion per tick) → files synced (a portion per flush) → snapshot
```

A checkpoint bounds what a start after a crash has to scan: everything derived from the log before
its offset is durable. The snapshot is written last, once that is true; until then the older one
counts, and recovery repeats more. While senders wait for every flush the portions are small, but
they do not stop: a log whose checkpoint never ends would have to be scanned as a whole.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable

import msgspec

from sparrowmq.clock import Clock
from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import Marks, QueueState, state_of
from sparrowmq.store.layout import CHECKPOINT


class Checkpoint(msgspec.Struct):
    """A checkpoint under way."""

    log_offset: int
    store_timestamp: int
    queues_left: int
    """Queues that were dirty when it began and are not written yet."""
    paths: deque[str] | None = None
    """Files still to be synced; None until all tails are written."""
    directories: list[str] = []
    queues: list[QueueState] = []
    min_log_offset: int = 0

    def is_synced(self, durable: int) -> bool:
        """Whether nothing is left to sync, the log included."""
        return self.paths is not None and not self.paths and durable >= self.log_offset


class Checkpoints:
    """The checkpoint under way, and the content of the last one."""

    def __init__(
        self, config: StoreConfig, log: CommitLog, dispatch: Dispatch, marks: Marks
    ) -> None:
        self._config = config
        self._log = log
        self._dispatch = dispatch
        self._marks = marks
        self._under_way: Checkpoint | None = None
        self._offset = 0
        self._began_ms = 0
        self._queue_time = 0
        self._states: list[QueueState] = []
        """States in the last snapshot …"""
        self._min_log_offset = -1
        """… and where the log began then; -1 if that is not known."""

    def start(
        self, now_ms: int, log_offset: int, states: list[QueueState], min_log_offset: int
    ) -> None:
        """Begin with the snapshot that recovery found."""
        self._offset = log_offset
        self._states = states
        self._min_log_offset = min_log_offset
        self._began_ms = now_ms

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted; `save`, or what `saving` returns, makes that durable."""
        self._states = self._without(topics, self._states, self._offset)
        if (checkpoint := self._under_way) is not None:
            checkpoint.queues = self._without(topics, checkpoint.queues, checkpoint.log_offset)

    def _without(
        self, topics: Collection[str], states: list[QueueState], log_offset: int
    ) -> list[QueueState]:
        """States at `log_offset` without those of deleted topics.

        A slave may learn of a deletion when the topic exists again. Then a queue has a state if it
        had new messages by that log offset; for the others recovery finds all messages past it.
        """
        queues = self._dispatch.queues
        return [
            state
            for state in states
            if state.topic not in topics
            or (
                (queue := queues.get((state.topic, state.queue_id))) is not None
                and queue.first_from(log_offset) > queue.min_offset
            )
        ]

    def save(self) -> None:
        """Write the last snapshot again, durably, without the note that the store was closed."""
        self.saving()()

    def saving(self) -> Callable[[], None]:
        """What `save` does with the current state, to be called later or in another thread."""
        snapshot = self._marks.next_snapshot(
            self._offset,
            self._states,
            self._dispatch.dropped,
            min_log_offset=self._min_log_offset,
        )

        def save() -> None:
            self._marks.write_snapshot(snapshot, sync=True)

        return save

    def hurry(self) -> None:
        """Let the next checkpoint begin at once."""
        self._began_ms = 0

    def complete(self) -> None:
        """Count this moment as the last checkpoint, as everything is durable by other means."""
        self._offset = self._log.end
        self._min_log_offset = self._log.min_offset
        self._states = [state_of(queue) for queue in self._dispatch.queues.values()]
        self._queue_time = self._log.last_timestamp
        self._marks.save_checkpoint(
            self._queue_time, self._queue_time, self._dispatch.index.durable_timestamp
        )

    def tick(self, now_ms: int, portion: int, monotonic: Clock | None = None) -> None:
        """Write a portion of the queues; begin or advance a checkpoint. Raises DiskFull."""
        before = len(self._dispatch.dirty)
        self._dispatch.write_tails(portion, monotonic)
        written = before - len(self._dispatch.dirty)
        checkpoint = self._under_way
        if checkpoint is None:
            if self._is_due(now_ms):
                self._began_ms = now_ms
                self._under_way = Checkpoint(
                    self._log.end, self._log.last_timestamp, len(self._dispatch.dirty)
                )
        elif checkpoint.paths is None:
            checkpoint.queues_left -= written
            if checkpoint.queues_left <= 0:
                self._collect(checkpoint)

    def _is_due(self, now_ms: int) -> bool:
        grown = self._log.end - self._offset
        if not grown:
            return False
        if now_ms < self._began_ms:
            self._began_ms = now_ms  # the clock was set back
        waited = now_ms - self._began_ms
        return (
            waited >= self._config.checkpoint_interval_ms or grown >= self._config.checkpoint_bytes
        )

    def _collect(self, checkpoint: Checkpoint) -> None:
        files = self._dispatch.files
        self._dispatch.index.build()
        index = self._dispatch.index.begin_sync() or SyncPlan([], [], [])
        checkpoint.paths = deque([*files.unsynced, *index.derived])
        checkpoint.directories = sorted({*files.unsynced_dirs, *index.directories})
        files.unsynced.clear()
        files.unsynced_dirs.clear()
        checkpoint.min_log_offset = self._log.min_offset
        checkpoint.queues = [state_of(queue) for queue in self._dispatch.queues.values()]

    @property
    def files_left(self) -> int:
        """How many files the checkpoint under way still has to sync, as far as known."""
        checkpoint = self._under_way
        return 0 if checkpoint is None or checkpoint.paths is None else len(checkpoint.paths)

    def take(self, at_once: int, all_from: int | None) -> tuple[list[str], list[str]]:
        """Files and directories to sync next: `at_once` files, or as many as are left.

        All of them if there are more than `all_from`.
        """
        checkpoint = self._under_way
        if checkpoint is None or checkpoint.paths is None:
            return [], []
        directories, checkpoint.directories = checkpoint.directories, []
        count = len(checkpoint.paths)
        if all_from is None or count <= all_from:
            count = min(at_once, count)
        return [checkpoint.paths.popleft() for _ in range(count)], directories

    def finish(self, durable: int, store_timestamp: int) -> set[str]:
        """Note that what was taken is durable, and the log up to `durable`.

        Ends the checkpoint if nothing is left; the files that record this are not synced yet.
        """
        checkpoint = self._under_way
        if checkpoint is None or not checkpoint.is_synced(durable):
            return set()
        self._dispatch.index.end_sync()
        dropped = self._dispatch.dropped
        # A topic dropped exactly at this offset may have been dropped after its state was taken.
        # If it exists again, all of its messages lie from there on, where recovery reads them.
        self._states = [
            state
            for state in checkpoint.queues
            if state.topic not in dropped or dropped[state.topic] < checkpoint.log_offset
        ]
        path = self._marks.save_snapshot(
            checkpoint.log_offset,
            self._states,
            dropped,
            min_log_offset=checkpoint.min_log_offset,
        )
        self._queue_time = checkpoint.store_timestamp
        self._marks.save_checkpoint(
            store_timestamp, self._queue_time, self._dispatch.index.durable_timestamp
        )
        self._offset = checkpoint.log_offset
        self._min_log_offset = checkpoint.min_log_offset
        self._under_way = None
        return {path, CHECKPOINT}

    def abandon(self) -> tuple[Iterable[str], Iterable[str]]:
        """End the checkpoint under way; returns the files and directories it had not synced."""
        checkpoint, self._under_way = self._under_way, None
        return ((checkpoint.paths or ()), checkpoint.directories) if checkpoint else ((), ())
