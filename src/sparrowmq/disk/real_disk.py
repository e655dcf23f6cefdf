"""The real `Disk`: system calls, and for the commit log a map of already allocated space.

A mapped write costs 0.1 µs where a pwrite costs 2.5 µs, but touching a mapped page that has no
block ends the process with SIGBUS when the disk is full. Hence `write` uses the map only inside
what `reserve` has allocated; the rest goes through pwrite, whose ENOSPC is an ordinary error.
"""

import contextlib
import errno
import mmap
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from sparrowmq.disk.disk import Bytes, DiskFile, Words
from sparrowmq.disk.errors import DiskError, DiskFull, NoDescriptors, StoreLocked
from sparrowmq.disk.page_cache import CachedReads

_CLOEXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_TRANSLATED = _NO_SPACE | _NO_DESCRIPTORS
_RECENT_BYTES = 32 * 1024 * 1024
"""How far before the last write the map is read: those pages are in memory, so no fault blocks."""
_AHEAD_AT_ONCE = 512 * 1024
"""Linux silently cuts longer advice to the device's largest request, which is 1 MiB or less."""


class RealUsage(NamedTuple):
    """The file system's size and free space."""

    total_bytes: int
    free_bytes: int


class RealLock:
    """The lock file, open while it is held."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealFile:
    """A descriptor, and for a file with reserved space a map of it."""

    def __init__(self, path: str, descriptor: int, *, mapped: bool) -> None:
        self.path = path
        self._descriptor = descriptor
        self._may_map = mapped
        self._map: mmap.mmap | None = None
        self._mapped_from = 0
        self._mapped_to = 0
        self._written_to = 0
        self._cached: CachedReads | None = None

    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes, fewer at the end of the file; may block on the device."""
        data = os.pread(self._descriptor, length, offset)
        if len(data) == length or not data:
            return data
        return data + self.read(offset + len(data), length - len(data))

    def read_cached(self, offset: int, length: int) -> bytes | None:
        """`read` without waiting for the device: None if it would have to.

        The mapped part cannot miss unless memory is so short that the kernel drops pages written
        seconds ago; for the rest, see `CachedReads`.
        """
        end = offset + length
        recent_from = max(self._mapped_from, self._written_to - _RECENT_BYTES)
        if self._map is not None and recent_from <= offset and end <= self._written_to:
            return self._map[offset:end]
        cached = self._cached
        if cached is None:
            cached = self._cached = CachedReads(self._descriptor)
        # If it is impossible to tell, handing every read to a worker would cost each pull a thread
        # switch; most of what is read is in memory there as well.
        return cached.read(offset, length) if cached.can_tell else self.read(offset, length)

    def read_ahead(self, offset: int, length: int) -> None:
        """Let the device start reading what is needed soon; may wait for its queue."""
        if not hasattr(os, "posix_fadvise"):
            return
        end = offset + length
        for start in range(offset, end, _AHEAD_AT_ONCE):
            step = min(_AHEAD_AT_ONCE, end - start)
            os.posix_fadvise(self._descriptor, start, step, os.POSIX_FADV_WILLNEED)

    def write(self, offset: int, data: Bytes) -> None:
        """Write all of `data`. Raises DiskFull, or OSError."""
        end = offset + len(data)
        if self._mapped_from <= offset and end <= self._mapped_to:
            self._map[offset:end] = data  # type: ignore[index]  # mapped_to is 0 without a map
            if end > self._written_to:
                self._written_to = end
            return
        self._write_through(offset, data)

    def write_words(self, offset: int, places: Words, values: Words) -> None:
        """Write 4-byte big-endian numbers, each to its place in a table at `offset`."""
        end = offset + 4 * (int(places.max(initial=0)) + 1)
        if self._map is None or not self._mapped_from <= offset <= end <= self._mapped_to:
            for place, value in zip(places.tolist(), values.tolist(), strict=True):
                self.write(offset + 4 * place, value.to_bytes(4, "big"))
            return
        import numpy as np  # here, so that clients, which replace files too, do without it

        # Through a view of words: a fifth of what a slice of the map for each costs.
        np.frombuffer(self._map, ">u4", (end - offset) // 4, offset)[places] = values
        self._written_to = max(self._written_to, end)

    def _write_through(self, offset: int, data: Bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                view = view[written:]
                offset += written
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, self.path, len(data)) from error
            raise

    def reserve(self, offset: int, length: int) -> None:
        """Allocate space for the range, which stays zero, growing the file if needed."""
        if not hasattr(os, "posix_fallocate"):
            if self.size() < offset + length:
                self.truncate(offset + length)
            return
        try:
            os.posix_fallocate(self._descriptor, offset, length)
            if self._may_map:  # which takes another descriptor
                self._map_reserved(offset, offset + length)
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, self.path, length) from error
            raise

    def _map_reserved(self, start: int, end: int) -> None:
        if self._map is None or len(self._map) < end:
            # The whole file at once: address space is free, and only reserved pages are touched.
            self._map = mmap.mmap(self._descriptor, 0)
        if self._mapped_from <= start <= self._mapped_to:
            self._mapped_to = max(self._mapped_to, end)
        else:
            self._mapped_from, self._mapped_to, self._written_to = start, end, start

    def warm(self, offset: int, length: int) -> None:
        """Fill reserved space with zeros, so that mapped writes find their pages (decision 14)."""
        if self._mapped_from <= offset and offset + length <= self._mapped_to:
            self._write_through(offset, bytes(length))

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros, without allocating) to `size`."""
        self._unmap()
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, self.path, size) from error
            raise

    def sync(self) -> None:
        """Return when all writes so far are durable. After OSError none of them is certain."""
        _sync_descriptor(self._descriptor)

    def close(self) -> None:
        """Close the file without syncing it. Closing twice is allowed."""
        self._unmap()
        self._cached = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
        self._map = None
        self._mapped_from = self._mapped_to = self._written_to = 0


class RealDisk:
    """The file system below `root`; `mapped=False` never maps, where that misbehaves."""

    def __init__(self, root: Path, *, mapped: bool = True) -> None:
        self.root = root
        # Joining paths costs more than opening files.
        self._prefix = f"{str(root).rstrip('/')}/"
        self._mapped = mapped

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """Open a file; `create` creates it, but not its directory, if it is missing."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        try:
            descriptor = os.open(self._prefix + path, flags | _CLOEXEC, 0o644)
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, path, 0) from error
            raise
        return RealFile(path, descriptor, mapped=self._mapped and write)

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return os.path.exists(self._prefix + path)  # noqa: PTH110  # see _prefix

    def size(self, path: str) -> int:
        """A file's length. Raises FileNotFoundError."""
        return os.stat(self._prefix + path).st_size  # noqa: PTH116  # see _prefix

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""
        try:
            return sorted(os.listdir(self._prefix + path))  # noqa: PTH208  # see _prefix
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, path, 0) from error
            raise

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; an existing one is fine."""
        try:
            (self.root / path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, path, 0) from error
            raise

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; does nothing if it is missing or not empty."""
        with contextlib.suppress(OSError):
            (self.root / path).rmdir()

    def replace(self, source: str, target: str) -> None:
        """Rename atomically, over a target that exists."""
        try:
            (self.root / source).replace(self.root / target)
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, target, 0) from error
            raise

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        (self.root / path).unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        """Make a file durable by its path."""
        self._sync(path, os.O_RDONLY)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        # Windows cannot open directories, and journals names itself.
        if hasattr(os, "O_DIRECTORY"):
            self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def _sync(self, path: str, flags: int) -> None:
        try:
            descriptor = os.open(self._prefix + path, flags | _CLOEXEC)
        except OSError as error:
            if error.errno in _TRANSLATED:
                raise _translated(error, path, 0) from error
            raise
        try:
            _sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def usage(self) -> RealUsage:
        """How full the file system is."""
        usage = shutil.disk_usage(self.root)
        return RealUsage(usage.used + usage.free, usage.free)

    def lock(self, path: str) -> RealLock:
        """Take Apache's store lock. Raises StoreLocked."""
        import fcntl  # here, so that clients on Windows can read a store's files

        descriptor = os.open(self.root / path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o644)
        try:
            # Java's FileChannel.tryLock(0, 1, false) is a POSIX lock, which flock does not see.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLocked(str(self.root)) from error
        return RealLock(descriptor)

    def real_path(self, path: str) -> str | None:
        """The path under which another process finds the file."""
        return self._prefix + path


def _translated(error: OSError, path: str, size_bytes: int) -> DiskError:
    if error.errno in _NO_DESCRIPTORS:
        return NoDescriptors(path)
    return DiskFull(path, size_bytes)


def _sync_descriptor(descriptor: int) -> None:
    sync = getattr(os, "fdatasync", os.fsync)
    sync(descriptor)
