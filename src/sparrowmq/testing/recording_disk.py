"""A `Disk` in memory that knows what has been synced, and can lose everything else.

Names and contents have separate histories: a file that was synced, in a directory that was not, is
gone after a power cut, as POSIX allows. `crashed(rng)` gives the disk as found after one:

* of the unsynced sectors any subset has arrived, in any order, and possibly any new length;
* of the names changed in a directory since its sync, the first few changes have arrived.

`killed()` gives what the next process finds: everything written. To simulate a full disk, set
`capacity_bytes`; `RecordedCalls` decides which calls fail.
"""

import errno
import os
from random import Random
from typing import NamedTuple

from sparrowmq.disk.disk import Bytes, DiskFile, Words
from sparrowmq.disk.errors import DiskFull, StoreLocked
from sparrowmq.testing.recorded_calls import SECTOR, RecordedBytes, RecordedCalls
from sparrowmq.testing.recorded_names import RecordedNames, parent_of

_UNLIMITED = 1 << 50


class RecordedUsage(NamedTuple):
    """The size of the disk and what is left of it."""

    total_bytes: int
    free_bytes: int


class RecordedFile:
    """An open file of a RecordingDisk."""

    def __init__(self, disk: "RecordingDisk", path: str, content: RecordedBytes, write: bool):
        self.path = path
        self._disk = disk
        self._content = content
        self._may_write = write
        self._is_open = True

    def _call(self, operation: str, *, write: bool = False) -> None:
        self._disk.call(operation, self.path)
        if not self._is_open or (write and not self._may_write):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)

    def size(self) -> int:
        """Its length in bytes."""
        self._call("size")
        return len(self._content.data)

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes, fewer at the end of the file."""
        self._call("read")
        return bytes(self._content.data[offset : offset + length])

    def read_cached(self, offset: int, length: int) -> bytes | None:
        """The same: everything is in memory."""
        return self.read(offset, length)

    def read_ahead(self, offset: int, length: int) -> None:
        """Nothing to do: everything is in memory."""

    def write(self, offset: int, data: Bytes) -> None:
        """Write all of `data`; not durable. Raises DiskFull, or OSError."""
        self._call("write", write=True)
        self._disk.allocate(self._content, self.path, offset, len(data))
        self._content.write(offset, data)

    def write_words(self, offset: int, places: Words, values: Words) -> None:
        """Write numbers of 4 bytes, big-endian, each at its place of a table at `offset`."""
        for place, value in zip(places.tolist(), values.tolist(), strict=True):
            self.write(offset + 4 * place, value.to_bytes(4, "big"))

    def reserve(self, offset: int, length: int) -> None:
        """Allocate space for the range, growing the file if needed. Raises DiskFull."""
        self._call("reserve", write=True)
        self._disk.allocate(self._content, self.path, offset, length)
        if offset + length > len(self._content.data):
            self._content.resize(offset + length)

    def warm(self, offset: int, length: int) -> None:
        """Fill reserved space with zeros; not durable. Raises OSError."""
        self._call("warm", write=True)
        self._content.write(offset, bytes(length))

    def truncate(self, size: int) -> None:
        """Cut or extend to `size`."""
        self._call("truncate", write=True)
        self._content.resize(size)

    def sync(self) -> None:
        """Make the contents durable; the name is the directory's."""
        self._call("sync")
        self._content.sync()

    def close(self) -> None:
        """Release the file."""
        self._is_open = False


class RecordedLock:
    """A lock, held until it is released."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


class RecordingDisk(RecordedCalls):
    """A directory tree in memory. `capacity_bytes` limits what can be allocated."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        self._names: RecordedNames[RecordedBytes] = RecordedNames()
        self._locked: set[str] = set()

    def allocate(self, content: RecordedBytes, path: str, offset: int, length: int) -> None:
        """Take space for a range of a file. Raises DiskFull."""
        if self.capacity_bytes is None or length <= 0:
            return
        wanted = set(range(offset // SECTOR, (offset + length - 1) // SECTOR + 1))
        wanted -= content.allocated
        if len(wanted) * SECTOR > self.usage().free_bytes:
            raise DiskFull(path, length)
        content.allocated |= wanted

    def crashed(self, rng: Random) -> "RecordingDisk":
        """The disk as a machine may find it after losing power now; this one is not changed."""
        after = RecordingDisk(capacity_bytes=self.capacity_bytes)
        after._names = self._names.crashed(rng, lambda content: content.crashed(rng))
        return after

    def killed(self) -> "RecordingDisk":
        """The disk as the next process finds it after a kill: everything written is there."""
        after = RecordingDisk(capacity_bytes=self.capacity_bytes)
        after._names = self._names.copied(RecordedBytes.copy)
        return after

    def files(self) -> dict[str, bytes]:
        """Every file's contents as they are now."""
        return {path: bytes(content.data) for path, content in sorted(self._names.files())}

    def poke(self, path: str, data: bytes) -> None:
        """Replace a file's contents from outside, durably: damage, or a copied store."""
        self._names.poke(path, RecordedBytes(bytearray(data)))

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """Open a file; `create` creates a missing file, but not its directory."""
        content = self._names.find(path)
        self.call("create" if create and content is None else "open", path)
        if content is None:
            if not create:
                raise _missing(path)
            content = self._names.create(path, RecordedBytes())
        return RecordedFile(self, path, content, write)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        self.call("exists", path)
        return self._names.exists(path)

    def size(self, path: str) -> int:
        """A file's length."""
        self.call("size", path)
        return len(self._existing(path).data)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""
        self.call("listdir", path)
        return self._names.listdir(path)

    def mkdir(self, path: str) -> None:
        """Make a directory and those above it."""
        self.call("mkdir", path)
        self._names.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.call("rmdir", path)
        self._names.rmdir(path)

    def replace(self, source: str, target: str) -> None:
        """Rename atomically; durable when the directory is synced."""
        self.call("replace", target)
        if not self._names.exists(source) or not self._names.is_dir(parent_of(target)):
            raise _missing(source)
        if fault := self._names.replace_fault(source, target):
            raise OSError(fault, os.strerror(fault), target)
        self._names.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; one that is missing is fine."""
        self.call("unlink", path)
        self._names.unlink(path)

    def sync(self, path: str) -> None:
        """Make a file's contents durable."""
        content = self._existing(path)
        self.call("sync", path)
        content.sync()

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.call("sync_dir", path)
        if not self._names.is_dir(path):
            raise _missing(path)
        self._names.sync(path)

    def usage(self) -> RecordedUsage:
        """How full the disk is."""
        total = self.capacity_bytes if self.capacity_bytes is not None else _UNLIMITED
        used = sum(len(content.allocated) for _, content in self._names.files()) * SECTOR
        return RecordedUsage(total, max(total - used, 0))

    def lock(self, path: str) -> RecordedLock:
        """Take the store's lock. Raises StoreLocked."""
        if path in self._locked:
            raise StoreLocked(path)
        self.open(path, create=True)
        self._locked.add(path)
        return RecordedLock(self._locked, path)

    def real_path(self, path: str) -> str | None:
        """None: only this disk can sync its files."""
        return None

    def _existing(self, path: str) -> RecordedBytes:
        content = self._names.find(path)
        if content is None:
            raise _missing(path)
        return content


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
