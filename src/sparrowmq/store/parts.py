"""What a store is made of, and whether it takes messages."""

from sparrowmq.disk.disk import Disk, DiskLock
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import QueueFiles
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import Marks
from sparrowmq.store.epochs import LogEpochs
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.flushing import Flushing
from sparrowmq.store.index.key_index import MessageIndex
from sparrowmq.store.raw_log import RawAppend
from sparrowmq.store.recovery.recovery import Report


class StoreParts:
    """The parts, shared by appending, reading and everything else."""

    def __init__(
        self, config: StoreConfig, disk: Disk, lock: DiskLock, index: MessageIndex, report: Report
    ) -> None:
        self.config = config
        self._disk = disk
        self._lock = lock
        self._report = report
        self._log = CommitLog(config, disk)
        self._files = QueueFiles(config, disk)
        self._dispatch = Dispatch(self._files, index, config.delay_levels_ms)
        self._queues = self._dispatch.queues
        self._marks = Marks(config, disk)
        self.epochs = LogEpochs(disk, self._queues)
        self._window = config.unsynced_window
        self._flushing = Flushing(config, disk, self._log, self._dispatch, self._marks)
        self._raw = RawAppend(self._log, self._dispatch)
        self._stopped: StoreStopped | None = None
        self._full: DiskFull | None = None
        """The last tick found no space."""
        self._over_mark: DiskFull | None = None
        """The disk is used above the upper mark."""
        self._refusal: StoreStopped | DiskFull | None = None
        """The first of the three that is set."""
        self._own_from = 0
        self._reported: set[int] = set()

    def _failed(self, error: OSError) -> StoreStopped:
        self.fail(f"writing failed: {error}")
        assert self._stopped is not None
        return self._stopped

    def fail(self, reason: str) -> None:
        """Nothing may be acknowledged any more, for instance because a sync failed."""
        if self._stopped is None:
            self._stopped = StoreStopped(reason)
            self._decide_refusal()

    @property
    def has_failed(self) -> bool:
        """Whether the store takes no more messages until it is opened again."""
        return self._stopped is not None

    def _decide_refusal(self) -> None:
        self._refusal = self._stopped or self._full or self._over_mark
