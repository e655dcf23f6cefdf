"""Rebuilding everything derived from the log, beside the old files, then swapping it in.

The recovery that opens a store also builds the new queues and index, on a disk that puts them into
a separate directory. They replace the old ones only when all of them are complete and durable, so a
rebuild that fails halfway changes nothing. A crash during the swap costs nothing either: the next
start finds derived files that do not match, and rebuilds them from the log.
"""

from collections.abc import Callable, Iterator

import msgspec

from sparrowmq.clock import Zone, utc
from sparrowmq.disk.disk import Disk, DiskFile, DiskLock, Usage
from sparrowmq.store.config import CONSUME_QUEUE_UNIT, StoreConfig
from sparrowmq.store.durable_marks import Marks, QueueState
from sparrowmq.store.errors import StoreError
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.index.index_recovery import index_names
from sparrowmq.store.index.key_index import INDEX_MARK
from sparrowmq.store.layout import INDEX_DIR, LOCK, OWN_DIR, QUEUE_DIR, file_offset, queue_dir
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.store.store import Store
from sparrowmq.store.trash import remove_tree

WORK_DIR = f"{OWN_DIR}/rebuild"
_SNAPSHOTS = (f"{OWN_DIR}/queues.0", f"{OWN_DIR}/queues.1")
_OLD = "old-"
_MOVED = (QUEUE_DIR, INDEX_DIR, INDEX_MARK, *_SNAPSHOTS)


class Rebuilt(msgspec.Struct):
    """What the rebuild produced."""

    queues: int
    log_end: int


def rebuild(
    disk: Disk,
    config: StoreConfig,
    now_ms: int,
    report: Callable[[Damage | StartProgress], None],
    *,
    zone: Zone = utc,
) -> Rebuilt:
    """Build queues and index from the log and swap them in; `zone` is the host's time zone.

    Raises StoreLocked while a broker uses the store, StoreError if foreign files lie among those
    to be replaced, StoreCorrupted, DiskFull or OSError; the old files are then unchanged.
    """
    lock = disk.lock(LOCK)
    try:
        return rebuild_locked(disk, config, now_ms, report, zone=zone)
    finally:
        lock.release()


def rebuild_locked(
    disk: Disk,
    config: StoreConfig,
    now_ms: int,
    report: Callable[[Damage | StartProgress], None],
    *,
    zone: Zone = utc,
    cut_at: int | None = None,
    is_copy: bool = False,
) -> Rebuilt:
    """`rebuild` for a caller that holds the store's lock.

    With `cut_at`, the log was cut there. With `is_copy` it is a copy of another broker's: no epoch
    begins.
    """
    check_strangers(disk)
    remove_tree(disk, WORK_DIR)
    disk.mkdir(WORK_DIR)
    beside = RelocatedDisk(disk, {path: f"{WORK_DIR}/{_flat(path)}" for path in _MOVED})
    remember_queues(StoreFiles(disk), beside, config, cut_at)
    store = Store.open(config, beside, now_ms, report, zone=zone, is_copy=is_copy)
    log_end = store.max_log_offset
    store.close()
    queues = len(StoreFiles(beside).queues())
    _swap(disk)
    return Rebuilt(queues, log_end)


def config_of(disk: Disk, layout: IndexLayout | None = None) -> StoreConfig:
    """The sizes a store was written with, taken from its files.

    Raises StoreCorrupted if log files differ in size.
    """
    files, config = StoreFiles(disk), StoreConfig()
    layout = layout or IndexLayout(config.index_slots, config.index_entries)
    snapshot = files.snapshot()
    if snapshot is not None:
        units = snapshot.queue_file_units
    else:  # the longest: a shorter one was cut
        directories = (queue_dir(*key) for key in files.queues())
        paths = (f"{each}/{name}" for each in directories for name in disk.listdir(each))
        sizes = [disk.size(path) for path in paths]
        units = max(max(sizes) // CONSUME_QUEUE_UNIT, 1) if sizes else config.queue_file_units
    return StoreConfig(
        log_file_size=files.log_file_size() or config.log_file_size,
        queue_file_units=units,
        index_slots=layout.slots,
        index_entries=layout.entries,
    )


def remember_queues(
    files: StoreFiles, target: Disk, config: StoreConfig, cut_at: int | None
) -> None:
    """Record how far each queue came: once all its messages have expired, the log cannot tell.

    The record replaces every snapshot on `target`, and makes recovery read the whole log.
    """
    starts = files.log_starts()
    ends: dict[tuple[str, int], int] = {}
    were_cut: set[tuple[str, int]] = set()
    snapshot = files.snapshot()
    for key in files.queues():
        for offset, unit in files.units(*key):
            if cut_at is not None and unit[0] >= cut_at:
                ends[key] = offset
                were_cut.add(key)
                break
            ends[key] = offset + 1
    for state in snapshot.queues if snapshot is not None else []:
        key = state.topic, state.queue_id
        if key not in were_cut:
            ends[key] = max(ends.get(key, 0), state.max_offset)
    states = [QueueState(*key, end, end, []) for key, end in sorted(ends.items()) if end]
    dropped = snapshot.dropped if snapshot is not None else {}
    target.mkdir(OWN_DIR)
    marks = Marks(config, target)
    marks.load_snapshot()
    for _ in range(2):  # both places: the older snapshot may cover what was cut
        marks.save_snapshot(starts[0] if starts else 0, states, dropped, sync=True)


def check_strangers(disk: Disk) -> None:
    """Raise StoreError for files the log cannot restore: the old directories go as a whole."""
    queues = {queue_dir(*key) for key in StoreFiles(disk).queues()}
    for path in (*_files_below(disk, QUEUE_DIR), *_files_below(disk, INDEX_DIR)):
        directory, _, name = path.rpartition("/")
        is_queue = directory in queues and file_offset(name) is not None
        is_index = directory == INDEX_DIR and name in index_names(disk, INDEX_DIR)
        if not is_queue and not is_index:
            raise StoreError(
                f"{path} is not a file of a store, and a rebuild would delete it:"
                " move it away first"
            )
    ours = {prefix + _flat(path) for path in _MOVED for prefix in ("", _OLD)}
    for path in _files_below(disk, WORK_DIR):
        if path.removeprefix(f"{WORK_DIR}/").partition("/")[0] not in ours:
            raise StoreError(
                f"{path} is not a file of a store, and lies where a rebuild works and deletes:"
                " move it away first"
            )


def _files_below(disk: Disk, path: str) -> Iterator[str]:
    for name in disk.listdir(path):
        inner = f"{path}/{name}"
        if disk.listdir(inner):
            yield from _files_below(disk, inner)
        elif _is_file(disk, inner):
            yield inner


def _is_file(disk: Disk, path: str) -> bool:
    """False for an empty directory: deleting it loses nothing."""
    try:
        file = disk.open(path, write=False)
    except IsADirectoryError:
        return False
    try:
        file.read(0, 1)  # the real disk opens a directory, but does not read it
    except IsADirectoryError:
        return False
    finally:
        file.close()
    return True


def _swap(disk: Disk) -> None:
    for path in _MOVED:
        old, new = f"{WORK_DIR}/{_OLD}{_flat(path)}", f"{WORK_DIR}/{_flat(path)}"
        if disk.exists(path):
            disk.replace(path, old)
        if disk.exists(new):
            disk.replace(new, path)
    for directory in (WORK_DIR, OWN_DIR, ""):
        disk.sync_dir(directory)
    remove_tree(disk, WORK_DIR)


def _flat(path: str) -> str:
    return path.replace("/", "-")


class RelocatedDisk:
    """A disk with some paths, and everything below them, moved elsewhere; its lock is held."""

    def __init__(self, disk: Disk, moved: dict[str, str]) -> None:
        self._disk = disk
        self._moved = moved

    def _at(self, path: str) -> str:
        for source, target in self._moved.items():
            if path == source or path.startswith(f"{source}/"):
                return target + path[len(source) :]
        return path

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """Open a file."""
        return _RelocatedFile(self._disk.open(self._at(path), create=create, write=write), path)

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return self._disk.exists(self._at(path))

    def size(self, path: str) -> int:
        """A file's length."""
        return self._disk.size(self._at(path))

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        return self._disk.listdir(self._at(path))

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        self._disk.mkdir(self._at(path))

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._disk.rmdir(self._at(path))

    def replace(self, source: str, target: str) -> None:
        """Rename."""
        self._disk.replace(self._at(source), self._at(target))

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._disk.unlink(self._at(path))

    def sync(self, path: str) -> None:
        """Make a file durable."""
        self._disk.sync(self._at(path))

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        self._disk.sync_dir(self._at(path))

    def usage(self) -> Usage:
        """How full the file system is."""
        return self._disk.usage()

    def lock(self, path: str) -> DiskLock:
        """Already held: the caller that made this disk releases it."""
        return _HeldLock()

    def real_path(self, path: str) -> str | None:
        """The path under which another process finds the file."""
        return self._disk.real_path(self._at(path))


class _HeldLock:
    """Closing a lock file drops all POSIX locks on it, so it must never be opened twice."""

    def release(self) -> None:
        """Do nothing: the lock is the caller's."""


class _RelocatedFile:
    """Keeps the path it was opened under: `RelocatedDisk.sync` relocates that path again."""

    def __init__(self, file: DiskFile, path: str) -> None:
        self.path = path
        self.size = file.size
        self.read = file.read
        self.read_cached = file.read_cached
        self.read_ahead = file.read_ahead
        self.write = file.write
        self.write_words = file.write_words
        self.reserve = file.reserve
        self.warm = file.warm
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close
