"""Deleting log files: expired ones in the deletion hour, more when the disk fills up.

`files_to_delete` and `refuses` decide, `Retention` acts. Everything derived from a deleted file,
queue units and index entries, goes with it; the queues' offsets stay.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from sparrowmq.clock import Zone, utc
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.admission import Admission
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.epochs import LogEpochs
from sparrowmq.store.flushing import Flushing
from sparrowmq.store.queries import store_time
from sparrowmq.store.trash import Trash

_HOUR_MS = 3_600_000
FILES_AT_ONCE = 10
"""Deleting a file of 1 GiB takes the file system a while (deleteFileBatchMax)."""


class LogFile(msgspec.Struct, frozen=True):
    """A log file and an upper bound of its messages' store times, None if it is not known."""

    start: int
    last_time: int | None


def is_deletion_hour(config: StoreConfig, now_ms: int, zone: Zone = utc) -> bool:
    """Whether it is the local hour in which expired files are deleted."""
    return (now_ms + zone(now_ms)) // _HOUR_MS % 24 == config.deletion_hour


def files_to_delete(
    config: StoreConfig,
    files: Sequence[LogFile],
    now_ms: int,
    used_ratio: float,
    *,
    any_hour: bool = False,
    needed_from: int | None = None,
    zone: Zone = utc,
) -> list[int]:
    """Starts of the files to delete now, oldest first; `files` are all but the one being written.

    Files that a slave still needs, from `needed_from` on, are kept while the disk has room.
    """
    expired = []
    if any_hour or is_deletion_hour(config, now_ms, zone) or used_ratio >= config.clean_ratio:
        for file in files:
            if file.last_time is None or now_ms - file.last_time <= config.retention_ms:
                break
            if needed_from is not None and file.start + config.log_file_size > needed_from:
                break
            expired.append(file.start)
    if not expired and files and used_ratio >= config.force_clean_ratio:
        # One at a time: the caller checks the disk again before the next.
        return [files[0].start]
    return expired[:FILES_AT_ONCE]


def refuses(config: StoreConfig, *, was_refusing: bool, used_ratio: float) -> bool:
    """Whether to refuse messages: from the upper mark on, until the disk is below the lower."""
    limit = config.force_clean_ratio if was_refusing else config.refuse_ratio
    return used_ratio >= limit


class Retention:
    """Deletes files of an open store, and refuses messages while the disk is nearly full."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log: CommitLog,
        dispatch: Dispatch,
        flushing: Flushing,
        epochs: LogEpochs,
        admission: Admission,
        trash: Trash,
        *,
        zone: Zone = utc,
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = log
        self._dispatch = dispatch
        self._flushing = flushing
        self._epochs = epochs
        self._admission = admission
        self._trash = trash
        self._zone = zone

    def configure(self, config: StoreConfig) -> None:
        """Use the times and marks of `config` for deleting and refusing from now on.

        An operator may change these while the store is open; the rest of `config` is ignored.
        """
        self._config = config

    def clean(
        self,
        now_ms: int,
        *,
        any_hour: bool = False,
        set_forward: Callable[[int], int] = lambda log_offset: 0,
        needed_from: int | None = None,
    ) -> list[int]:
        """Delete log files that expired or that the disk has no room for; returns what was deleted.

        With `any_hour` expired files need not wait for the deletion hour. `set_forward` returns by
        how much the clock was set forward since a record was stored: that does not make it older.
        From `needed_from` on a slave still needs the log.
        Also decides whether messages are refused because the disk is nearly full.
        """
        deleted: list[int] = []
        while starts := self.clean_some(
            now_ms, any_hour=any_hour, set_forward=set_forward, needed_from=needed_from
        ):
            deleted += starts
            self._trash.empty()
        return deleted

    def clean_some(
        self,
        now_ms: int,
        *,
        any_hour: bool = False,
        set_forward: Callable[[int], int] = lambda log_offset: 0,
        needed_from: int | None = None,
    ) -> list[int]:
        """One step of `clean`, which moves files to the trash; empty when it was the last.

        The trash must be emptied before the next step, which checks the disk again.
        """
        starts = files_to_delete(
            self._config,
            self._finished_files(set_forward),
            now_ms,
            self._used_ratio(),
            any_hour=any_hour,
            needed_from=needed_from,
            zone=self._zone,
        )
        for start in starts:
            self._log.remove(start, self._trash)
        if starts:
            min_log_offset = self._log.min_offset
            self._dispatch.set_min(min_log_offset, self._trash)
            self._dispatch.forget_dropped(min_log_offset)
            self._epochs.forget_before(min_log_offset)
            self._dispatch.index.clean(min_log_offset, self._trash)
        else:
            self._decide_refusal()
        return starts

    def _decide_refusal(self) -> None:
        ratio = self._used_ratio()
        was_refusing = self._admission.is_over_mark
        if refuses(self._config, was_refusing=was_refusing, used_ratio=ratio):
            text = f"the disk is {ratio:.0%} full; messages are refused until it is less"
            self._admission.set_over_mark(DiskFull("", 0, text))
        else:
            self._admission.set_over_mark(None)

    def _used_ratio(self) -> float:
        usage = self._disk.usage()
        return 1 - usage.free_bytes / usage.total_bytes if usage.total_bytes else 0.0

    def _finished_files(self, set_forward: Callable[[int], int]) -> list[LogFile]:
        """Files no longer written to; each one's time is that of the next one's first message."""

        def stored_ms(log_offset: int) -> int | None:
            time_ms = store_time(log, log_offset)
            return None if time_ms is None else time_ms + set_forward(log_offset)

        log = self._log
        starts = [start for start in log.starts if start <= log.file_start]
        return [
            LogFile(start, stored_ms(following))
            for start, following in pairwise(starts)
            # A file that is not durable yet may be on its way to the device right now.
            if start + log.file_size <= self._flushing.durable
        ]
