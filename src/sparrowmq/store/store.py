"""The store: one commit log for all topics, consume queues, key index, checkpoint.

```
Store ── Appender ──▶ CommitLog       the records themselves; the rest is derived from them
     │           └──▶ Dispatch        consume queues and key index
     ├── Reader ────▶ both
     ├── Flushing                     what is durable, what to sync next, checkpoints
     ├── Retention                    deletes expired files
     ├── LogEpochs                    since when an offset means the message it means now
     └── Admission                    whether messages are accepted; every part that writes asks it
```

Synchronous, one writer, no clock, no threads: the caller passes the time and syncs files where it
likes. A full disk is a temporary error (`DiskFull`) that ends when there is space again; any other
failed write or sync is final (`StoreStopped`), because it is unknown what reached the disk.
"""

from collections.abc import Callable, Mapping

from sparrowmq.clock import Clock, Zone, utc
from sparrowmq.disk.disk import Disk, DiskLock
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.admission import Admission
from sparrowmq.store.appender import Appender
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import ConsumeQueue, QueueFiles
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import Marks
from sparrowmq.store.epochs import UNBOUNDED, LogEpochs
from sparrowmq.store.flushing import Flushing, FlushPlan, Recovered
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.index.key_index import KeyIndex
from sparrowmq.store.layout import ABORT, LOCK, LOG_DIR, OWN_DIR, QUEUE_DIR
from sparrowmq.store.messages import Damage, Report, StartProgress
from sparrowmq.store.queries import Boundary
from sparrowmq.store.queue_lookups import ColdTime, QueueLookups
from sparrowmq.store.queue_read import ColdRead
from sparrowmq.store.reader import Reader
from sparrowmq.store.recovery.recovery import Recovery
from sparrowmq.store.retention import Retention
from sparrowmq.store.trash import Trash

__all__ = ["Boundary", "ColdRead", "ColdTime", "Store"]

Grown = list[tuple[ConsumeQueue, int]]
_QUEUES_PER_TICK = 256
"""Written in one tick; only 16 if their files are new."""
_MUCH_SCANNED = 32
"""A start that scanned more than 1/32 of `checkpoint_bytes` makes a checkpoint at once."""


def _ignore(_: Damage | StartProgress) -> None:
    pass


class Store:
    """An open store. `Store.open` creates it, `close` ends it."""

    def __init__(
        self, config: StoreConfig, disk: Disk, lock: DiskLock, report: Report, zone: Zone
    ) -> None:
        self.config = config
        self.zone = config.zone(zone)
        self.recovered = Recovered()
        """What opening the store found and did."""
        self._disk = disk
        self._lock = lock
        self._report = report
        self._log = CommitLog(config, disk)
        self._files = QueueFiles(config, disk)
        layout = IndexLayout(config.index_slots, config.index_entries)
        index = KeyIndex(disk, layout=layout, zone=self.zone)
        self._dispatch = Dispatch(self._files, index, config.delay_levels_ms)
        self._marks = Marks(config, disk)
        self._flushing = Flushing(config, disk, self._log, self._dispatch, self._marks)
        self.admission = Admission()
        self.trash = Trash(disk)
        """Deleted files that still take space; any thread may call `trash.empty`."""
        self.epochs = LogEpochs(disk, self._dispatch.queues, lambda: self._log.end)
        self._seen_past_end = 0
        self._save_deletions: Callable[[], None] | None = None
        self._scanned_bytes = 0

        # The interface is the parts' own functions. Methods that only pass the call on would cost
        # every send and every pull one more call.
        appender = Appender(config, self._log, self._dispatch, self.admission)
        self.append = appender.append
        self.append_batch = appender.append_batch
        self.append_raw = appender.append_raw
        self.take_copied = appender.take_copied
        self.forget_held_bytes = appender.forget_held_bytes

        reader = Reader(config, disk, self._log, self._dispatch, report)
        self.read_queue = reader.read_queue
        self.read_message = reader.read_message
        self.read_record = reader.read_record
        self.read_log = reader.read_log
        self.read_log_at_once = reader.read_log_at_once
        self.queues = reader.queues
        self.units = reader.units
        self.units_at_once = reader.units_at_once
        self.min_offset = reader.min_offset
        self.max_offset = reader.max_offset
        self.queue_range = reader.queue_range
        self.visible_range = reader.visible_range
        self.limit_readers = reader.limit_readers
        self.queue_offset_by_time = reader.queue_offset_by_time
        self.earliest_store_time = reader.earliest_store_time
        self.store_time = reader.store_time
        self.find_by_key = reader.find_by_key

        lookups = QueueLookups(disk, self._log, self._dispatch.queues, self._files.units_per_file)
        self.time_at = lookups.time_at
        self.load_times = lookups.load_times
        self.bytes_in = lookups.bytes_in

        self.begin_flush = self._flushing.begin_flush
        retention = Retention(
            *(config, disk, self._log, self._dispatch, self._flushing, self.epochs, self.admission),
            self.trash,
            zone=self.zone,
        )
        self.clean = retention.clean
        self.clean_some = retention.clean_some
        self.set_retention = retention.configure

    @staticmethod
    def open(
        config: StoreConfig,
        disk: Disk,
        now_ms: int,
        report: Report = _ignore,
        *,
        is_copy: bool = False,
        zone: Zone = utc,
    ) -> "Store":
        """Open the store on `disk`, repairing what a crash left. `report` is called with any
        damage; `zone` is the host's time zone.

        With `is_copy` no epoch begins: another broker's bytes continue the log, until `begin_epoch`
        is called.

        Raises StoreLocked, StoreCorrupted, DiskFull, or OSError.
        """
        disk.mkdir("")
        lock = disk.lock(LOCK)
        try:
            store = Store(config, disk, lock, report, zone)
            store._recover(now_ms)
            if not is_copy:
                store._begin_epoch(now_ms, store._seen_past_end)
            store._prepare_or_wait()
        except BaseException:
            lock.release()
            raise
        return store

    def _recover(self, now_ms: int) -> None:
        recovery = Recovery(
            self.config, self._disk, self._log, self._dispatch, self._marks, self._report
        )
        self.recovered = found = recovery.run()
        self._log.continue_at(found.end, found.last_record, found.last_timestamp)
        self._flushing.start(now_ms, found)
        self._flushing.sync_recovered()
        self._note_last_life(found)
        if found.min_log_offset != self._log.min_offset:
            self._dispatch.set_min(self._log.min_offset)
        self._scanned_bytes = found.scanned_bytes

    def _note_last_life(self, found: Recovered) -> None:
        """Note how far past the log's end readers may have read."""
        self._seen_past_end = self.epochs.load()
        if found.was_foreign:
            self._seen_past_end = UNBOUNDED
        if not found.was_running:
            self._seen_past_end = 0
        if self.epochs.was_copy:  # its master's readers may have seen any number more
            self._seen_past_end = UNBOUNDED

    def begin_epoch(self, now_ms: int, *, nothing_is_lost: bool = False) -> None:
        """Make a store that was opened as a copy a master's from now on.

        `nothing_is_lost`: everything readers saw in the last run is in the log again, because
        slaves had it. That holds if copies protected it: a run with a window showed readers more.
        """
        copies_protected = self._seen_past_end == UNBOUNDED
        is_complete = nothing_is_lost and copies_protected
        self._begin_epoch(now_ms, 0 if is_complete else self._seen_past_end)
        try:
            self.epochs.save()  # before anything is appended
        except DiskFull as error:
            self.admission.set_no_space(error)

    def _begin_epoch(self, now_ms: int, seen_past_end: int) -> None:
        """Begin an epoch: what readers saw in the last run and the log has lost is void."""
        # Where copies protect what readers saw, no local window bounds it.
        window = UNBOUNDED if self.config.is_shown_by_owner else self.config.unsynced_window
        self.epochs.begin(self._log.end, seen_past_end, window, now_ms)

    def _prepare_or_wait(self) -> None:
        try:
            self._prepare(self._scanned_bytes)
        except DiskFull as error:
            self.admission.set_no_space(error)

    def _prepare(self, scanned_bytes: int) -> None:
        """Do everything that needs space: on a full disk the store can still be read."""
        self._disk.open(ABORT, create=True).close()
        for path in (LOG_DIR, QUEUE_DIR, OWN_DIR):
            self._disk.mkdir(path)
        self._disk.sync_dir("")
        self.epochs.save()
        self._dispatch.write_tails()
        if scanned_bytes > self.config.checkpoint_bytes // _MUCH_SCANNED:
            self._flushing.save_scanned()
        self._flushing.save_start()
        self._log.prepare()

    def close(self) -> None:
        """Make everything durable and release the directory.

        After a failure no marks are written: the next start recovers as after a crash.
        """
        try:
            if not self.admission.has_stopped:
                self._log.close()
                self._flushing.close()
                self._disk.unlink(ABORT)
                self._disk.sync_dir("")
        except DiskFull:
            pass  # the abort marker stays, so the next start scans
        finally:
            self._dispatch.index.abandon()
            self._log.close()
            self._files.close()
            self._marks.close()
            self.epochs.close()
            self._lock.release()

    def abandon(self) -> None:
        """Release the directory without writing marks: the next start recovers."""
        self.admission.stop("it was abandoned")
        self.close()

    @property
    def min_log_offset(self) -> int:
        """Where the oldest log file starts."""
        return self._log.min_offset

    @property
    def max_log_offset(self) -> int:
        """Where the next record goes."""
        return self._log.end

    @property
    def last_record_offset(self) -> int:
        """The log offset of the last record, -1 in an empty log."""
        return self._log.last_record

    @property
    def durable_log_offset(self) -> int:
        """Records before it survive a power cut."""
        return self._flushing.durable

    @property
    def has_failed(self) -> bool:
        """Whether the store takes no more messages until it is opened again."""
        return self.admission.has_stopped

    def fail(self, reason: str) -> None:
        """Stop acknowledging messages, for instance because a sync failed."""
        self.admission.stop(reason)

    def tick(self, now_ms: int, monotonic: Clock | None = None) -> None:
        """Write what is only in memory and prepare space; call every 20 to 100 ms.

        With `monotonic`, fewer new files are made while the disk is slow."""
        if self.admission.has_stopped:
            return
        try:
            self.epochs.save()
            self._log.prepare()
            self._dispatch.index.build()
            self._flushing.tick(now_ms, _QUEUES_PER_TICK, monotonic)
            self.admission.set_no_space(None)
        except DiskFull as error:
            self.admission.set_no_space(error)
        except OSError as error:
            self.admission.write_failed(error)

    def slots_ahead(self) -> Callable[[], None] | None:
        """A function for a worker that reads the part of the index written next into memory; None
        if nothing is about to be written. Entries become durable first, so there is time."""
        files = self._dispatch.index.unplaced_files
        if not files:
            return None

        def read_ahead() -> None:
            for file in files:
                file.read_slots_ahead()

        return read_ahead

    def finish_flush(self, plan: FlushPlan) -> list[tuple[str, int]]:
        """Note that the whole plan is synced; returns the queues readers see more of now."""
        try:
            shown = self._flushing.finish_flush(plan)
            return [(queue.topic, queue.queue_id) for queue in shown]
        except DiskFull as error:
            self.admission.set_no_space(error)
        except OSError as error:
            self.admission.write_failed(error)
        return []

    def take_grown(self) -> Grown:
        """Queues that grew since the last call, and their ends, to pass to `show`.

        Only for an owner that shows messages itself (`is_shown_by_owner`).
        """
        return self._dispatch.take_unsynced()

    def show(self, grown: Grown) -> list[tuple[str, int]]:
        """Let readers see these queues up to there; returns those they see more of now."""
        shown = []
        for queue, end in grown:
            if queue.durable_to < end:
                queue.durable_to = end
                shown.append((queue.topic, queue.queue_id))
        return shown

    def hide_from(self, log_offset: int) -> Grown:
        """Let readers see only what lies before a log offset; returns the rest, to pass to `show`.

        At a start, when everything that was found can be read. Reads the queues that have more.
        """
        hidden = [
            (queue, queue.max_offset)
            for queue in self._dispatch.queues.values()
            if queue.max_offset > queue.min_offset and queue.reaches(log_offset)
        ]
        for queue, _ in hidden:
            queue.durable_to = queue.first_from(log_offset)
        return hidden

    def delete_topic(self, topic: str, now_ms: int) -> bool:
        """Delete a topic: its messages can no longer be read; False if it had none.

        If it is created again, old positions in its queues are void. Raises DiskFull, or OSError.
        """
        ends = [queue.max_offset for queue in self._dispatch.of_topic(topic)]
        if not ends:
            return False
        # Epochs and snapshot are synced here, on the caller's thread, although that may take tens
        # of milliseconds: the epoch must be durable before another message is appended, or
        # positions learned from now on would pass as valid after a power cut that undoes the
        # deletion. It comes first, so that a full disk leaves the topic as it was.
        self.epochs.delete_topic(topic, self._log.end, max(ends), now_ms)
        self.epochs.save()
        self._dispatch.drop_topic(topic, self._log.end, self.trash)
        self._flushing.forget_topics((topic,))()
        return True

    @property
    def deletions(self) -> dict[str, int]:
        """Deleted topics: their messages before this log offset can no longer be read."""
        return dict(self._dispatch.dropped)

    def follow_deletions(self, deletions: Mapping[str, int]) -> list[str]:
        """Delete what a master deleted, up to the log offset where it did: topics that were created
        again keep what was stored since. Returns the topics that lost messages, or may have.

        Call `save_deletions` before the deletions are reported.
        """
        known = self._dispatch.dropped
        news = [
            topic
            for topic, before in deletions.items()
            if before > max(known.get(topic, 0), self._log.min_offset)
        ]
        for topic in news:
            self._dispatch.drop_topic(topic, deletions[topic], self.trash)
        if news:
            self._save_deletions = self._flushing.forget_topics(set(news))
        return news

    def save_deletions(self) -> None:
        """Make the followed deletions durable; may run in another thread. Raises DiskFull or
        OSError, and may be called again then."""
        save = self._save_deletions
        if save is not None:
            save()
            if self._save_deletions is save:
                self._save_deletions = None
