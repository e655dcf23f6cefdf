"""The store: one commit log for all topics, consume queues, key index, checkpoint.

Synchronous, one writer, no clock, no threads: the caller says what time it is and syncs files where
it likes. A full disk is an answer (`DiskFull`) that ends when there is space again; a write or sync
that fails otherwise is the end (`StoreStopped`), because nobody knows what reached the disk.
"""

from collections.abc import Callable
from itertools import pairwise

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.appender import Appends
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.epochs import UNBOUNDED
from sparrowmq.store.flushing import FlushPlan, Recovered
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.index.key_index import KeyIndex, MessageIndex
from sparrowmq.store.layout import ABORT, LOCK, LOG_DIR, OWN_DIR, QUEUE_DIR
from sparrowmq.store.messages import Damage, Progress
from sparrowmq.store.queries import Boundary, store_time
from sparrowmq.store.queue_read import ColdRead
from sparrowmq.store.reader import Reads
from sparrowmq.store.recovery.recovery import Recovery, Report
from sparrowmq.store.retention import LogFile, files_to_delete, refuses

__all__ = ["Boundary", "ColdRead", "Store"]

_QUEUES_PER_TICK = 256
_MUCH_SCANNED = 32
"""A start that scanned more than this part of `checkpoint_bytes` makes a checkpoint at once."""


def _ignore(_: Damage | Progress) -> None:
    pass


class Store(Appends, Reads):
    """An open store. Made by `Store.open`, ended by `close`."""

    @staticmethod
    def open(
        config: StoreConfig,
        disk: Disk,
        now_ms: int,
        report: Report = _ignore,
        index: MessageIndex | None = None,
    ) -> "Store":
        """Open the store on `disk`, repairing what a crash left. `report` is told about damage.

        Raises StoreLocked, StoreCorrupted, DiskFull, or OSError.
        """
        disk.mkdir("")
        lock = disk.lock(LOCK)
        try:
            store = Store(config, disk, lock, index or _key_index(config, disk), report)
            store._recover(now_ms)
        except BaseException:
            lock.release()
            raise
        return store

    def _recover(self, now_ms: int) -> None:
        recovery = Recovery(
            self.config, self._disk, self._log, self._dispatch, self._marks, self._report
        )
        found = recovery.run()
        self._log.continue_at(found.end)
        self._own_from = found.end
        self._flushing.start(now_ms, found)
        self._flushing.sync_recovered()
        self._begin_epoch(found, now_ms)
        if found.min_log_offset != self._log.min_offset:
            self._set_min()
        try:
            self._prepare(found.scanned_bytes)
        except DiskFull as error:
            self._full = error
            self._decide_refusal()

    def _begin_epoch(self, found: Recovered, now_ms: int) -> None:
        """What readers saw of the last life and the log does not hold any more is forgotten."""
        seen_past_end = self.epochs.load()
        if found.was_foreign:
            seen_past_end = UNBOUNDED
        if not found.was_running:
            seen_past_end = 0
        self.epochs.begin(found.end, seen_past_end, self._window, now_ms)

    def _prepare(self, scanned_bytes: int) -> None:
        """Everything that needs space: on a full disk the store can still be read."""
        self._disk.open(ABORT, create=True).close()
        for path in (LOG_DIR, QUEUE_DIR, OWN_DIR):
            self._disk.mkdir(path)
        self._disk.sync_dir("")
        self.epochs.save()
        self._dispatch.write_tails(len(self._dispatch.dirty))
        if scanned_bytes > self.config.checkpoint_bytes // _MUCH_SCANNED:
            self._flushing.save_scanned()
        self._flushing.save_start()
        self._log.prepare()

    def _set_min(self) -> None:
        min_log_offset = self._log.min_offset
        for queue in self._queues.values():
            queue.set_min(min_log_offset)

    def close(self, now_ms: int) -> None:
        """Make everything durable and let go of the directory.

        After a failure nothing is marked: the next start recovers as after a crash.
        """
        try:
            if self._stopped is None:
                self._log.close()
                self._flushing.close()
                self._disk.unlink(ABORT)
                self._disk.sync_dir("")
        except DiskFull:
            pass  # the abort marker stays, the next start scans
        finally:
            self._dispatch.index.abandon()
            self._log.close()
            self._files.close()
            self._marks.close()
            self._lock.release()

    @property
    def last_record_offset(self) -> int:
        """The log offset of the last record, -1 in an empty log."""
        return self._flushing.last_record

    @property
    def durable_log_offset(self) -> int:
        """Records before it survive a power cut."""
        return self._flushing.durable

    def begin_flush(self, *, urgent: bool = False) -> FlushPlan | None:
        """What to sync now; None if nothing is to be done or a flush is under way.

        With `urgent` the log alone: somebody waits for it.
        """
        return self._flushing.begin_flush(urgent=urgent)

    def finish_flush(self, plan: FlushPlan) -> list[tuple[str, int]]:
        """Everything in the plan has been synced; the queues that readers see more of now."""
        try:
            shown = self._flushing.finish_flush(plan)
            return [(queue.topic, queue.queue_id) for queue in shown]
        except DiskFull as error:
            self._full = error
            self._decide_refusal()
        except OSError as error:
            self._failed(error)
        return []

    def tick(self, now_ms: int) -> None:
        """Write what is only in memory, prepare space; call it every 20 to 100 ms."""
        if self._stopped is not None:
            return
        try:
            self.epochs.save()
            self._log.prepare()
            self._dispatch.index.build()
            self._flushing.tick(now_ms, _QUEUES_PER_TICK)
            self._full = None
        except DiskFull as error:
            self._full = error
        except OSError as error:
            self._failed(error)
        self._decide_refusal()

    def clean(
        self,
        now_ms: int,
        *,
        any_hour: bool = False,
        set_forward: Callable[[int], int] = lambda log_offset: 0,
    ) -> list[int]:
        """Delete log files that have expired or that the disk has no room for; what was deleted.

        With `any_hour` expired files need not wait for the deletion hour. `set_forward` says by how
        much the clock was set since a record was stored: that does not make it older.
        Decides also whether messages are refused because the disk is nearly full.
        """
        deleted: list[int] = []
        while starts := files_to_delete(
            self.config,
            self._finished_files(set_forward),
            now_ms,
            self._used_ratio(),
            any_hour=any_hour,
        ):
            for start in starts:
                self._log.remove(start)
            deleted += starts
        if deleted:
            self._set_min()
            self._dispatch.forget_dropped(self._log.min_offset)
            self.epochs.forget_before(self._log.min_offset)
            self._dispatch.index.clean(self._log.min_offset)
        ratio = self._used_ratio()
        is_over = refuses(self.config, was_refusing=self._over_mark is not None, used_ratio=ratio)
        text = f"the disk is {ratio:.0%} full; messages are refused until it is less"
        self._over_mark = DiskFull("", 0, text) if is_over else None
        self._decide_refusal()
        return deleted

    def _used_ratio(self) -> float:
        usage = self._disk.usage()
        return 1 - usage.free_bytes / usage.total_bytes if usage.total_bytes else 0.0

    def _finished_files(self, set_forward: Callable[[int], int]) -> list[LogFile]:
        """Files that are not written any more; the first message of the next dates their last."""

        def stored_ms(log_offset: int) -> int | None:
            time_ms = store_time(log, log_offset)
            return None if time_ms is None else time_ms + set_forward(log_offset)

        log = self._log
        starts = [start for start in log.starts if start <= log.file_start]
        return [
            LogFile(start, stored_ms(following))
            for start, following in pairwise(starts)
            # One that is not durable yet may just be on its way to the device.
            if start + log.file_size <= self._flushing.durable
        ]

    def delete_topic(self, topic: str, now_ms: int) -> bool:
        """Forget a topic: its messages can no longer be read; False if it had none.

        Positions in its queues are worth nothing if it is made again. Raises DiskFull, or OSError.
        """
        ends = [queue.max_offset for queue in self._dispatch.of_topic(topic)]
        if not ends:
            return False
        # First, so that a full disk leaves the topic as it was.
        self.epochs.delete_topic(topic, self._log.end, max(ends), now_ms)
        self.epochs.save()
        self._dispatch.drop_topic(topic, self._log.end)
        self._flushing.forget_topic(topic)
        return True


def _key_index(config: StoreConfig, disk: Disk) -> MessageIndex:
    layout = IndexLayout(config.index_slots, config.index_entries)
    return KeyIndex(disk, layout=layout, utc_offset_ms=config.utc_offset_ms)
