"""Opening a store: what the files say, after a normal stop, a crash or damage.

```
normal stop   marks are intact and nothing follows them: no scan
crash         scan from the last snapshot; cut a torn tail; queues and index are dispatched again
damage        quarantine and fill what cannot be read, keep everything after it, report all
lost queues   missing ones and those with a wrong CRC are rebuilt from the whole log
```

The log is authoritative. Queues and index are derived from it and made to match it, so recovery
never has to weigh two files against each other. In the log, two kinds of broken bytes look alike
and must be treated differently. Past the last sync they are what a power cut leaves: nothing there
was ever acknowledged as durable, so the log is cut, because keeping a later record would lose
messages from the middle. Before it they are damage to messages that were acknowledged: the bytes
are quarantined, a record of the same size fills the hole, and everything after it stays readable at
its offset.
"""

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record_outline import RecordOutline
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.durable_marks import Mark, Marks, Snapshot
from sparrowmq.store.errors import StoreCorrupted
from sparrowmq.store.flushing import Recovered
from sparrowmq.store.layout import ABORT, LOG_DIR, QUARANTINE_DIR, log_path
from sparrowmq.store.messages import Damage, Report, StartProgress
from sparrowmq.store.recovery.log_scan import FileEnd, Hole, LogScan, last_byte
from sparrowmq.store.recovery.quarantine import fill, filled_places, free_path, keep_aside
from sparrowmq.store.recovery.queue_recovery import QueueRecovery

_SECTOR = 512
_PROGRESS_EVERY = 16 * 1024 * 1024


class Recovery:
    """Brings log, queues and index into one consistent state. Used once, by Store.open."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log: CommitLog,
        dispatch: Dispatch,
        marks: Marks,
        report: Report,
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = log
        self._dispatch = dispatch
        self._marks = marks
        self._report = report
        self._queues = QueueRecovery(disk, dispatch, report)
        self._result = Recovered()
        self._files_changed = False
        self._scanned_from = 0

    def run(self) -> Recovered:
        """Recover. Raises StoreCorrupted for files that are not this store's."""
        self._log.load()
        snapshot, mark = self._marks.load_snapshot(), self._marks.load_mark()
        self._check_sizes(snapshot)
        self._report_missing_log(snapshot)
        begin = self._begin(snapshot)
        is_apaches = snapshot is None and mark is None and not self._disk.exists(ABORT)
        if is_apaches and self._queues.adopt(self._log, self._last_used_start()):
            begin = self._last_used_start()
        else:
            is_apaches = False
            self._queues.load(snapshot, begin, is_clean=self._is_clean(snapshot, mark))
        found = self._dispatch.index.recover(begin, trust_unmarked=is_apaches)
        index_from = max(min(found, begin), self._log.min_offset)
        self._remember(snapshot, mark, begin)
        self._find_out_who_ran(snapshot)
        self._scan_from(begin, index_from, is_clean=self._is_clean(snapshot, mark))
        if is_apaches:
            self._rebuild_unknown()
        self._queues.finish(self._result.end)
        self._dispatch.clamp_dropped(self._result.end)
        self._result.durable = min(self._result.durable, self._result.end)
        self._result.scanned_bytes = self._result.end - self._scanned_from
        rebuilt = self._queues.lost if snapshot is not None or is_apaches else self._dispatch.queues
        self._result.rebuilt_queues = len(rebuilt)
        size = self._config.log_file_size
        self._result.filled = filled_places(self._disk, size, self._result.end)
        return self._result

    def _remember(self, snapshot: Snapshot | None, mark: Mark | None, begin: int) -> None:
        result = self._result
        result.durable = result.checkpointed = begin
        result.states = self._queues.states
        result.min_log_offset = -1 if snapshot is None else snapshot.min_log_offset
        if mark is not None:
            result.durable = max(begin, mark.log_offset)
            result.last_record = mark.last_record
            result.last_timestamp = mark.store_timestamp

    def _find_out_who_ran(self, snapshot: Snapshot | None) -> None:
        """Find out who had the store open last: our snapshot says whether we closed it, the abort
        marker that another broker did not."""
        result = self._result
        is_ours = snapshot is not None and not snapshot.is_clean
        result.was_running = is_ours or (bool(self._log.starts) and self._disk.exists(ABORT))
        result.was_foreign = not is_ours

    def _scan_from(self, begin: int, index_from: int, *, is_clean: bool) -> None:
        start = min(begin, index_from)
        if self._queues.lost or self._files_changed:
            start = self._log.min_offset
        self._scanned_from = start
        if is_clean and not self._files_changed and not self._goes_on(begin):
            self._scan(start, begin, begin, index_from, stop=begin)
            self._result.end = begin
        else:
            self._scan(start, begin, self._result.durable, index_from, stop=None)
            self._cut(self._result.end)

    def _last_used_start(self) -> int:
        """Start of the last log file that was not just created ahead."""
        for start in reversed(self._log.starts):
            if any(self._log.read_blocking(start, 8)):
                return start
        return self._log.min_offset

    def _rebuild_unknown(self) -> None:
        self._queues.find_unknown()
        if self._queues.lost:
            end = self._result.end
            self._scan(self._log.min_offset, end, end, end, stop=end)

    def _check_sizes(self, snapshot: Snapshot | None) -> None:
        size = self._config.log_file_size
        if snapshot is not None and snapshot.log_file_size != size:
            self._refuse_size(f"log files of {snapshot.log_file_size} bytes")
        if snapshot is not None and snapshot.queue_file_units != self._config.queue_file_units:
            self._refuse_size(f"queue files of {snapshot.queue_file_units} units")
        for start in self._log.starts:
            path = log_path(start)
            length = self._disk.size(path)
            if start % size or length > size:
                self._refuse_size(f"a log file of {length} bytes that starts at {start}")
            if length < size:
                self._extend(path, length, is_last=start == self._log.starts[-1])
        if snapshot is not None and self._log.starts:
            known = set(self._log.starts)
            for start in range(self._log.min_offset, snapshot.log_offset, size):
                if start not in known:
                    # The scan fills its place and reports it.
                    self._files_changed = True

    def _report_missing_log(self, snapshot: Snapshot | None) -> None:
        """Report that the whole log is gone. An operator deleted it, or it is on a disk that is not
        mounted: no crash does that, and retention keeps the file being written."""
        if snapshot is None or self._log.starts or snapshot.log_offset == 0:
            return
        lost = snapshot.log_offset - max(snapshot.min_log_offset, 0)
        reason = "every log file is missing; if their disk is not mounted, stop and mount it"
        action = f"the log continues at {snapshot.log_offset:,}, without the messages before it"
        self._report(Damage(LOG_DIR, 0, lost, reason, action))

    def _refuse_size(self, found: str) -> None:
        raise StoreCorrupted(
            log_path(self._log.starts[0] if self._log.starts else 0),
            0,
            f"the store has {found}, but the configuration has log files of"
            f" {self._config.log_file_size} bytes and queue files of"
            f" {self._config.queue_file_units} units; set store-log-file-size"
            " and store-queue-file-units to what the store was created with",
        )

    def _extend(self, path: str, length: int, *, is_last: bool) -> None:
        """Extend a file that was cut, or that a crash left between its creation and extension."""
        if length or not is_last:
            self._files_changed = True
            missing = self._config.log_file_size - length
            self._report(Damage(path, length, missing, "the file is too short", "extended"))
        file = self._disk.open(path)
        try:
            file.truncate(self._config.log_file_size)
        finally:
            file.close()

    def _begin(self, snapshot: Snapshot | None) -> int:
        if snapshot is None:
            return self._log.min_offset if self._log.starts else 0
        if not self._log.starts:
            return snapshot.log_offset
        return max(snapshot.log_offset, self._log.min_offset)

    def _is_clean(self, snapshot: Snapshot | None, mark: Mark | None) -> bool:
        return (
            snapshot is not None
            and mark is not None
            and snapshot.is_clean
            and mark.log_offset == snapshot.log_offset
            and not self._disk.exists(ABORT)
        )

    def _goes_on(self, log_offset: int) -> bool:
        """Whether Apache's broker has written past our last record."""
        return any(self._log.read_blocking(log_offset, 8)) or any(
            start > log_offset for start in self._log.starts
        )

    def _scan(
        self, start: int, begin: int, sure: int, index_from: int, *, stop: int | None
    ) -> None:
        scan = LogScan(
            self._log,
            self._config.log_file_size,
            self._log.starts,
            sure=sure,
            look_ahead=2 * self._config.reserve_bytes,
        )
        self._result.end = start
        self._told = start
        lost = self._queues.lost
        for found in scan.outlines(start, stop):
            match found:
                case RecordOutline():
                    self._dispatch.redispatch(
                        found,
                        queues=found.log_offset >= begin or (found.topic, found.queue_id) in lost,
                        index=found.log_offset >= index_from,
                    )
                    self._result.end = found.log_offset + found.size
                    self._result.scanned_records += 1
                    self._result.last_record = found.log_offset
                    self._result.last_timestamp = found.store_timestamp
                    self._tell_progress()
                case FileEnd():
                    self._result.end = found.next_start
                    if found.next_start not in self._log.starts and found.next_start > sure:
                        self._result.end = found.position
                        return
                case Hole():
                    if found.is_tail or self._was_never_synced(found, sure):
                        self._result.end = found.start
                        return
                    self._fill(found)
                    self._result.end = found.end

    def _tell_progress(self) -> None:
        end = self._result.end
        if end - self._told >= _PROGRESS_EVERY:
            self._told = end
            total = self._log.starts[-1] + self._config.log_file_size
            self._report(StartProgress("scanning the log", end, total))
            self._dispatch.write_tails()
            self._dispatch.index.build()

    def _was_never_synced(self, hole: Hole, sure: int) -> bool:
        """Whether a power cut explains the hole: sectors written since the last sync are lost and
        read as zeros. What follows was not acknowledged as durable either."""
        if hole.start < sure:
            return False
        file_end = self._log.start_of(hole.start) + self._config.log_file_size
        # The first bytes of the next record's size are zero anyway: look at its whole sector.
        end = min(hole.end + -hole.end % _SECTOR, file_end)
        data = self._log.read_blocking(hole.start, end - hole.start)
        head = -hole.start % _SECTOR
        if head and not any(data[:head]):
            # Part of a sector: zeros only mean something where a record's size has nonzero bytes.
            size = (hole.end - hole.start).to_bytes(8, "big")[4:]
            if head > len(size) or any(size[:head]):
                return True
        return any(
            not any(data[at : at + _SECTOR]) for at in range(head, len(data) - _SECTOR + 1, _SECTOR)
        )

    def _fill(self, hole: Hole) -> None:
        copies = fill(self._disk, self._config.log_file_size, hole)
        self._log.load()
        self._queues.blank(hole)
        self._report(
            Damage(
                log_path(self._log.start_of(hole.start)),
                hole.start % self._config.log_file_size,
                hole.end - hole.start,
                hole.reason,
                f"kept in {', '.join(copies)} and filled; everything after it is intact",
            )
        )

    def _cut(self, end: int) -> None:
        """Remove everything past the end of the log."""
        size = self._config.log_file_size
        file_start = self._log.start_of(end)
        beyond = [start for start in self._log.starts if start > file_start or start == end]
        for start in beyond:
            self._remove_file(start)
        if beyond:
            self._disk.sync_dir(LOG_DIR)
        if file_start not in self._log.starts:
            return
        limit = min(end + 2 * self._config.reserve_bytes, file_start + size)
        torn = last_byte(self._log, end, limit) - end
        if not torn:
            return
        path = log_path(file_start)
        copy = keep_aside(self._disk, size, end, end + torn)
        file = self._disk.open(path)
        try:
            file.truncate(end - file_start)
            file.truncate(size)
            # Otherwise the next power cut could bring it back between new records.
            file.sync()
        finally:
            file.close()
        self._result.cut_bytes += torn
        self._report(Damage(path, end - file_start, torn, "a torn tail", f"cut, kept in {copy}"))

    def _remove_file(self, start: int) -> None:
        """Remove a file past the log's end: created ahead and empty, or full of unusable bytes."""
        path = log_path(start)
        if last_byte(self._log, start, start + self._config.log_file_size) > start:
            copy = free_path(self._disk, f"{QUARANTINE_DIR}/{path.rpartition('/')[2]}")
            self._disk.mkdir(QUARANTINE_DIR)
            self._disk.replace(path, copy)
            self._disk.sync_dir(QUARANTINE_DIR)
            size = self._config.log_file_size
            self._result.cut_bytes += size
            self._report(Damage(path, 0, size, "lies past the log's end", f"moved to {copy}"))
        else:
            self._disk.unlink(path)
        self._log.starts.remove(start)
        self._log.names_changed = True
