"""Epochs of the log: since when an offset in a queue means the message it means now.

A queue can get shorter. A power cut takes messages that were not synced, a deleted topic starts
again at 0; new messages then get offsets that live consumers believe they have consumed. Within an
epoch that cannot happen. An epoch begins at every start of the store and at every deletion of a
topic, and is durable before anything is appended.

```
epoch 1            epoch 2           epoch 3
|------------------|-----------------|-------------▶ log
start 0            start 8,192       start 20,480

A position that was learned in epoch 1 is good up to the queue's first message at or past 8,192.
```

For a consumer that sends the epoch in which it learned its position, the answer is exact
(`end_since`). The position of one that cannot, a Java or Go client, is in doubt where readers may
have seen messages that are gone: from the queue's end at the start of an epoch, as far past it as
unsynced messages were served (`doubts`).

Why epochs rather than times or checksums: a position is a bare number, sent by clients that never
heard of epochs, and all that can be known about it is when it was learned. Epochs are few, one for
each start and deletion, so they are kept until the log no longer holds a record of them.

A slave's log is a copy: it takes over the epochs of its master and begins none, not even when it
restarts, because it gets lost bytes from the master again. The starts of masters, without the
deletions of topics, are the log's lineage: two copies with the same lineage up to an offset are
equal up to there.

The file is JSON, replaced as a whole. If it is missing, the last run of the store is unknown:
another release or Apache's broker wrote the store, and any position past the end is in doubt.
"""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.disk.disk import Disk
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.layout import OWN_DIR

EPOCHS = f"{OWN_DIR}/epochs"

UNBOUNDED = sys.maxsize // 2
"""For when it is unknown how far past the end readers have seen."""
_MOST_DELETED = 10_000
"""How many deleted topics are remembered; each costs about 100 bytes."""


class Epoch(msgspec.Struct, frozen=True):
    """Began at log offset `start`. Before it began, readers may have seen up to `seen_past_end`
    messages of a queue that are gone."""

    number: int
    start: int
    seen_past_end: int = 0


class LogStart(msgspec.Struct, frozen=True):
    """A master started at log offset `start`; `number` is that of the epoch it began."""

    number: int
    start: int


class Deletion(msgspec.Struct, frozen=True):
    """A topic's deletion began an epoch; no position in the topic was ever past `longest`."""

    epoch: int
    longest: int


class Doubt(msgspec.Struct, frozen=True):
    """Positions past `after`, up to `until`, may date from before `epoch`."""

    epoch: int
    after: int
    until: int


class EpochTable(msgspec.Struct):
    """All epochs, as stored in the file and adopted by slaves."""

    epochs: list[Epoch]
    unsynced_window: int
    """How far past the synced end readers could see in the run that wrote this."""
    deleted: dict[str, Deletion] = {}
    lineage: list[LogStart] = []
    is_copy: bool = False
    """Whether a slave wrote it."""


class LogEpochs:
    """The epochs that the log still holds records of, oldest first."""

    def __init__(
        self,
        disk: Disk,
        queues: Mapping[tuple[str, int], ConsumeQueue],
        log_end: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        self._file = AtomicFile(disk, EPOCHS)
        self._queues = queues
        self._log_end = log_end
        self._epochs: list[Epoch] = []
        self._deleted: dict[str, Deletion] = {}
        self.lineage: list[LogStart] = []
        """Every start of a master that the log still holds records of, oldest first."""
        self._window = 0
        self.was_copy = False
        """Whether the log is a slave's, or was in its last run."""
        self._is_saved = True
        self._written = b""
        """What was last written to the file."""
        self._writing = threading.Lock()
        self._is_closed = False
        self._ends: dict[tuple[str, int, int], int] = {}
        self._doubts: dict[tuple[str, int], tuple[Doubt, ...]] = {}
        self.current = 0
        """The epoch in which positions are learned now."""
        self.has_doubts = False
        """Whether any queue has positions that a client without epochs must prove."""

    def load(self) -> int:
        """Read the file; returns how far past the synced end readers of the last run saw."""
        data = self._file.read()
        if data is None:
            return UNBOUNDED
        try:
            saved = msgspec.json.decode(data, type=EpochTable)
        except msgspec.MsgspecError:
            return UNBOUNDED
        self._take(saved)
        return saved.unsynced_window

    def table(self) -> EpochTable:
        """All epochs, for a slave to adopt."""
        return EpochTable(
            epochs=list(self._epochs),
            unsynced_window=self._window,
            deleted=dict(self._deleted),
            lineage=list(self.lineage),
            is_copy=self.was_copy,
        )

    def adopt(self, table: EpochTable, written: bytes | None = None) -> None:
        """Adopt a master's epochs. Call `save` before appending its bytes; with `written`, which
        `draft` returned and `write` wrote, that has nothing to do unless others came between."""
        table = msgspec.structs.replace(table, is_copy=True)
        if table != self.table():
            self._take(table)
            self._is_saved = written is not None and written is self._written

    def draft(self, table: EpochTable) -> bytes | None:
        """What the file will hold when a master's epochs are adopted; None if nothing changes."""
        table = msgspec.structs.replace(table, is_copy=True)
        return None if table == self.table() else msgspec.json.encode(table)

    def write(self, draft: bytes) -> None:
        """Make a draft durable before it is adopted; may run in another thread. Raises DiskFull,
        OSError, or StoreStopped after `close`."""
        with self._writing:
            if self._is_closed:
                raise StoreStopped("the store was closed before its epochs were written")
            self._file.replace(draft)
            self._written = draft

    def _take(self, table: EpochTable) -> None:
        self._epochs, self._deleted = list(table.epochs), dict(table.deleted)
        # Earlier releases kept no lineage: each of their epochs may have been a start.
        self.lineage = list(table.lineage) or [
            LogStart(one.number, one.start) for one in self._epochs
        ]
        self._window = table.unsynced_window
        self.was_copy = table.is_copy
        self.current = self._epochs[-1].number if self._epochs else 0
        self._ends.clear()
        self._note_doubts()

    def take_starts(self, lineage: Sequence[LogStart], log_end: int) -> None:
        """Take over starts of another copy, whose bytes are about to follow from the log's end on.
        Our own starts there no longer count: nothing was stored since. Call `save` before the bytes
        are appended."""
        kept = [one for one in self.lineage if one.start < log_end]
        self.lineage = kept + [one for one in lineage if one.start >= log_end]
        self._is_saved = False

    def begin(self, start: int, seen_past_end: int, window: int, now_ms: int) -> None:
        """Begin an epoch at a start whose log ends at `start`. Call `save` before serving."""
        self._window = window
        self.was_copy = False
        self._begin(start, seen_past_end, now_ms)
        # A start whose bytes were all cut leaves nothing behind.
        self.lineage = [one for one in self.lineage if one.start < start]
        self.lineage.append(LogStart(self.current, start))

    def delete_topic(self, topic: str, log_end: int, longest: int, now_ms: int) -> None:
        """Begin an epoch because a topic was deleted. Call `save` before reporting that."""
        # A position may be older than the last loss and the last deletion of this topic.
        longest += max((one.seen_past_end for one in self._epochs), default=0)
        before = self._deleted.pop(topic, None)
        if before is not None:
            longest = max(longest, before.longest)
        self._begin(log_end, 0, now_ms)
        self._deleted[topic] = Deletion(self.current, longest)
        while len(self._deleted) > _MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]
        self.has_doubts = True

    def _begin(self, start: int, seen_past_end: int, now_ms: int) -> None:
        last = self._epochs[-1].number if self._epochs else 0
        # The time keeps numbers distinct if an older copy of the store was restored; the clock
        # decides nothing else.
        self.current = max(last + 1, now_ms)
        # Damage or older files may have cut the log before epochs that had begun: what follows
        # the cut belongs to none of them.
        self._epochs = [
            one if one.start <= start else msgspec.structs.replace(one, start=start)
            for one in self._epochs
        ]
        self._epochs.append(Epoch(self.current, start, seen_past_end))
        self._is_saved = False
        self._ends.clear()
        self._note_doubts()

    def _note_doubts(self) -> None:
        self._doubts.clear()
        self.has_doubts = bool(self._deleted) or any(one.seen_past_end for one in self._epochs)

    def save(self) -> None:
        """Make all changes durable, if there are any. Raises DiskFull, or OSError."""
        if self._is_saved:
            return
        self.write(msgspec.json.encode(self.table()))
        self._is_saved = True

    def close(self) -> None:
        """Write nothing more: another broker may use the store from now on."""
        with self._writing:
            self._is_closed = True

    def forget_before(self, min_log_offset: int) -> None:
        """Forget epochs whose records have all expired. The last epoch that began before
        `min_log_offset` stays: a position from an older one is void for all that is left, and in
        doubt as before."""
        while len(self._epochs) > 1 and self._epochs[1].start <= min_log_offset:
            seen_past_end = max(one.seen_past_end for one in self._epochs[:2])
            following = msgspec.structs.replace(self._epochs[1], seen_past_end=seen_past_end)
            self._epochs[:2] = [following]
            self._doubts.clear()
            self._is_saved = False
        while len(self.lineage) > 1 and self.lineage[1].start <= min_log_offset:
            del self.lineage[0]
            self._is_saved = False

    def end_since(self, topic: str, queue_id: int, epoch: int) -> int | None:
        """How far positions learned in `epoch` can be valid; None when nothing limits them.

        A slave learns of an epoch before its copy of the log gets there. Until then everything in
        the copy is older, and it is not known yet where the queue will have ended.
        """
        following = next((one for one in self._epochs if one.number > epoch), None)
        if following is None or following.start > self._log_end():
            return None
        return self._end_at(topic, queue_id, following)

    def doubts(self, topic: str, queue_id: int) -> tuple[Doubt, ...]:
        """Positions of a queue that count only for clients that learned them since."""
        found = self._doubts.get((topic, queue_id))
        if found is None:
            found = self._find_doubts(topic, queue_id)
            if self._epochs[-1].start <= self._log_end():  # else a slave's log grows into others
                self._doubts[topic, queue_id] = found
        return found

    def _find_doubts(self, topic: str, queue_id: int) -> tuple[Doubt, ...]:
        found = []
        for epoch in self._epochs:
            if epoch.seen_past_end and epoch.start <= self._log_end():
                end = self._end_at(topic, queue_id, epoch)
                found.append(Doubt(epoch.number, end, end + epoch.seen_past_end))
        deletion = self._deleted.get(topic)
        if deletion is not None:
            found.append(Doubt(deletion.epoch, 0, deletion.longest))
        return tuple(found)

    def _end_at(self, topic: str, queue_id: int, epoch: Epoch) -> int:
        """Where a queue ended when an epoch began. Looked up once each: it may read the disk."""
        key = topic, queue_id, epoch.number
        end = self._ends.get(key)
        if end is None:
            queue = self._queues.get((topic, queue_id))
            end = 0 if queue is None else queue.first_from(epoch.start)
            self._ends[key] = end
        return end
