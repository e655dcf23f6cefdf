"""Checkpoints: queues and index made durable a portion at a time, and a snapshot that says so.

```
due → queue tails written (a portion per tick) → files synced (a portion per flush) → snapshot
```

A checkpoint bounds what a start after a crash has to scan: everything derived from the log before
its offset is durable. The snapshot is written last, when that has become true; until then the older
one counts, and recovery repeats more. Where senders wait for every flush, the portions are small,
but they come: a log whose checkpoint never ends would have to be scanned as a whole.
"""

from collections import deque
from collections.abc import Collection, Iterable

import msgspec

from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import Marks, QueueState, state_of
from sparrowmq.store.layout import CHECKPOINT


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


class Checkpoints:
    """The checkpoint under way, and what the last one said."""

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
        """What the last snapshot said …"""
        self._min_log_offset = -1
        """… of a log that began here; -1 when that is not known."""

    def start(
        self, now_ms: int, log_offset: int, states: list[QueueState], min_log_offset: int
    ) -> None:
        """Begin with the snapshot that recovery found."""
        self._offset = log_offset
        self._states = states
        self._min_log_offset = min_log_offset
        self._began_ms = now_ms

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted: make that durable before it is reported."""
        self._states = self._without(topics, self._states, self._offset)
        if (checkpoint := self._under_way) is not None:
            checkpoint.queues = self._without(topics, checkpoint.queues, checkpoint.log_offset)
        self.save()

    def _without(
        self, topics: Collection[str], states: list[QueueState], log_offset: int
    ) -> list[QueueState]:
        """States at `log_offset` without those of deleted topics.

        A slave may learn of a deletion when the topic was made again. Then a queue has a state if
        it had new messages by that log offset; of the others recovery finds all messages past it.
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
        """Write the last snapshot once more, durably: the store is not a stopped one."""
        self._marks.save_snapshot(
            self._offset,
            self._states,
            self._dispatch.dropped,
            min_log_offset=self._min_log_offset,
            sync=True,
        )

    def hurry(self) -> None:
        """Let the next one begin at once."""
        self._began_ms = 0

    def complete(self) -> None:
        """Everything is durable, by other ways: take it for the last checkpoint."""
        self._offset = self._log.end
        self._min_log_offset = self._log.min_offset
        self._states = [state_of(queue) for queue in self._dispatch.queues.values()]
        self._queue_time = self._log.last_timestamp
        self._marks.save_checkpoint(
            self._queue_time, self._queue_time, self._dispatch.index.durable_timestamp
        )

    def tick(self, now_ms: int, portion: int) -> None:
        """Write a portion of the queues; begin or advance a checkpoint. Raises DiskFull."""
        before = len(self._dispatch.dirty)
        self._dispatch.write_tails(portion)
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
        """How many files the checkpoint under way still has to sync, as far as it is known."""
        checkpoint = self._under_way
        return 0 if checkpoint is None or checkpoint.paths is None else len(checkpoint.paths)

    def take(self, at_once: int, all_from: int | None) -> tuple[list[str], list[str]]:
        """Files and directories to be synced next: so many files, or all that are left.

        All of them where there are more than `all_from`.
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
        """What was taken is durable, and so is the log up to `durable`.

        Ends the checkpoint if nothing is left of it; the files that say so are not synced yet.
        """
        checkpoint = self._under_way
        if checkpoint is None or not checkpoint.is_synced(durable):
            return set()
        self._dispatch.index.end_sync()
        dropped = self._dispatch.dropped
        # A topic dropped exactly at this offset may have been dropped after its state was taken.
        # If it was made again, all of its messages lie from there on, where recovery reads them.
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
        """Files and directories that the checkpoint under way, which ends here, had not synced."""
        checkpoint, self._under_way = self._under_way, None
        return ((checkpoint.paths or ()), checkpoint.directories) if checkpoint else ((), ())
