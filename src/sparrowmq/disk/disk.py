"""Every file access of the store goes through a `Disk`, so that tests can simulate power cuts.

Paths are relative to the disk's root, with `/` between their parts: `config/topics.json`; the empty
path is the root itself. Nothing bypasses a disk: the real one maps allocated space for speed, but
only inside `DiskFile.write`. A write is durable only once `sync` (of the file) has returned, a new,
renamed or removed name only once `sync_dir` (of its directory) has.
"""

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # clients replace files too, but have no numpy
    import numpy as np
    import numpy.typing as npt

Words: TypeAlias = "npt.NDArray[np.uint32]"
Bytes: TypeAlias = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """One open file. Reads and writes carry their offset; there is no position."""

    @property
    def path(self) -> str:
        """The path it was opened with."""
        ...

    def size(self) -> int:
        """Its length in bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes, fewer at the end of the file; may block on the device."""
        ...

    def read_cached(self, offset: int, length: int) -> bytes | None:
        """`read` without waiting for the device: None if it would have to."""
        ...

    def read_ahead(self, offset: int, length: int) -> None:
        """Let the device start reading what is needed soon; may do nothing."""
        ...

    def write(self, offset: int, data: Bytes) -> None:
        """Write all of `data`. Raises DiskFull, or OSError."""
        ...

    def write_words(self, offset: int, places: Words, values: Words) -> None:
        """Write 4-byte big-endian numbers, each to its place in a table at `offset`.

        Equivalent to one `write` for each. Raises DiskFull, or OSError.
        """
        ...

    def reserve(self, offset: int, length: int) -> None:
        """Allocate space for the range, which stays zero, growing the file if needed.

        Writes into reserved space do not fail for want of space. Raises DiskFull.
        """
        ...

    def warm(self, offset: int, length: int) -> None:
        """Fill reserved space with zeros, so that writes into it find their pages in memory.

        Only for space without data. May do nothing where it does not help. Raises OSError.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros, without allocating) to `size`. Raises DiskFull, or OSError."""
        ...

    def sync(self) -> None:
        """Return when all writes so far are durable. After OSError none of them is certain."""
        ...

    def close(self) -> None:
        """Close the file without syncing it. Closing twice is allowed."""
        ...


class DiskLock(Protocol):
    """A lock, held until it is released or the process ends."""

    def release(self) -> None:
        """Release the lock."""
        ...


class Usage(Protocol):
    """How full the file system is."""

    @property
    def total_bytes(self) -> int:
        """The file system's size."""
        ...

    @property
    def free_bytes(self) -> int:
        """How much this process may still write."""
        ...


class Disk(Protocol):
    """A directory tree that files can be opened in."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """Open a file; `create` creates it, but not its directory, if it is missing.

        Raises FileNotFoundError, DiskFull, or OSError.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        ...

    def size(self, path: str) -> int:
        """A file's length. Raises FileNotFoundError."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; an existing one is fine."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; does nothing if it is missing or not empty."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename atomically, over a target that exists."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def sync(self, path: str) -> None:
        """Make a file durable by its path. Raises FileNotFoundError, or OSError."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def usage(self) -> Usage:
        """How full the file system is."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Take Apache's store lock: a POSIX lock on byte 0 of the file. Raises StoreLocked."""
        ...

    def real_path(self, path: str) -> str | None:
        """The path for another process to find the file; None if only this disk can sync it."""
        ...
