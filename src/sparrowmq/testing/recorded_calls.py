"""Parts of a recording disk: contents by sector, and calls that fail where a test wants them to.

Errors are planted with `fail`, a cut at a given call with `cut_at`. After a cut every call raises
PowerCut, which no `except Exception` catches.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sparrowmq.disk.disk import Bytes
from sparrowmq.disk.errors import DiskFull

SECTOR = 512


class RecordedBytes:
    """The contents of a file as they are, and what was in each sector changed since the sync."""

    def __init__(self, data: bytearray | None = None) -> None:
        self.data = data if data is not None else bytearray()
        self.synced_size = len(self.data)
        self._before: dict[int, bytes] = {}
        self.allocated: set[int] = set()

    def write(self, offset: int, data: Bytes) -> None:
        """Change bytes, growing the file if needed."""
        end = offset + len(data)
        self._remember(offset, end)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[offset:end] = data

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        if size < len(self.data):
            self._remember(size, len(self.data))
            del self.data[size:]
            self.allocated = {sector for sector in self.allocated if sector * SECTOR < size}
        else:
            self.data.extend(bytes(size - len(self.data)))

    def _remember(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-min(end, self.synced_size) // SECTOR)):
            if sector not in self._before:
                at = sector * SECTOR
                self._before[sector] = bytes(self.data[at : min(at + SECTOR, self.synced_size)])
        # Sectors past the durable end had nothing: their loss leaves zeros.
        for sector in range(max(start, self.synced_size) // SECTOR, -(-end // SECTOR)):
            self._before.setdefault(sector, b"")

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""
        self._before.clear()
        self.synced_size = len(self.data)

    @property
    def unsynced(self) -> int:
        """How many sectors a power cut may lose."""
        return len(self._before)

    def crashed(self, rng: Random) -> "RecordedBytes":
        """What a power cut leaves: of the changed sectors any subset, and an old or new length."""
        size = rng.choice((self.synced_size, len(self.data), len(self.data)))
        if size != self.synced_size and rng.random() < 0.3:
            low, high = sorted((self.synced_size, len(self.data)))
            size = rng.randint(low, high)
        data = bytearray(self.data[:size])
        data.extend(bytes(size - len(data)))
        share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for sector, old in sorted(self._before.items()):
            # Bytes that were only truncated are there again if the truncation did not arrive.
            is_lost = rng.random() >= share
            at = sector * SECTOR if is_lost else max(sector * SECTOR, len(self.data))
            end = min((sector + 1) * SECTOR, size)
            if at < end:
                data[at:end] = old.ljust(SECTOR, b"\x00")[at % SECTOR :][: end - at]
        after = RecordedBytes(data)
        after.allocated = set(self.allocated)
        return after

    def copy(self) -> "RecordedBytes":
        """A copy, including changes that are not durable yet."""
        same = RecordedBytes(bytearray(self.data))
        same.synced_size = self.synced_size
        same._before = dict(self._before)
        same.allocated = set(self.allocated)
        return same


_CHANGES = frozenset(
    {"write", "reserve", "truncate", "sync", "sync_dir", "create", "mkdir", "rmdir", "replace"}
    | {"unlink", "warm"}
)


class PowerCut(BaseException):
    """The machine is off."""


@dataclass(slots=True)
class Fault:
    """An error for calls of one operation, from the `first`-th matching call on."""

    operation: str
    error: int
    first: int = 1
    times: int | None = None
    path_prefix: str = ""
    seen: int = 0

    def meets(self, operation: str, path: str) -> bool:
        """Count a call; returns whether it has to fail."""
        if operation != self.operation or not path.startswith(self.path_prefix):
            return False
        self.seen += 1
        last = None if self.times is None else self.first + self.times
        return self.seen >= self.first and (last is None or self.seen < last)


class RecordedCalls:
    """Records the calls of a disk, and decides which of the next calls fail."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often each operation was called."""
        self.on_call: Callable[[str, str], None] | None = None
        """Called with operation and path before each call, for tests that look closer."""
        self.is_read_only = False
        self._faults: list[Fault] = []
        self._calls_left: int | None = None

    def fail(
        self,
        operation: str,
        error: int = errno.EIO,
        *,
        first: int = 1,
        times: int | None = None,
        path_prefix: str = "",
    ) -> Fault:
        """Let calls of `operation` fail from the `first`-th one on, forever or `times` times."""
        fault = Fault(operation, error, first, times, path_prefix)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all planted errors."""
        self._faults.clear()
        self.is_read_only = False

    def cut_at(self, call: int) -> None:
        """Cut the power instead of the `call`-th call that changes something."""
        self._calls_left = call

    def call(self, operation: str, path: str) -> None:
        """Count a call and let it fail if it has to."""
        if operation in _CHANGES and self._calls_left is not None:
            self._calls_left -= 1
        if self._calls_left is not None and self._calls_left <= 0:
            raise PowerCut
        self.calls[operation] += 1
        if self.on_call is not None:
            self.on_call(operation, path)
        if self.is_read_only and operation in _CHANGES and "sync" not in operation:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        for fault in self._faults:
            if fault.meets(operation, path):
                if fault.error == errno.ENOSPC:
                    raise DiskFull(path, 0)
                raise OSError(fault.error, os.strerror(fault.error), path)
