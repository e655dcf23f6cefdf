"""Calls to a recorded disk: counted, seen, and failing where a test wants it.

Errors are planted with `fail`, a cut at a given call with `cut_at`. After a cut every call raises
PowerCut, which no `except Exception` takes for an error.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.store.errors import DiskFull

_CHANGES = frozenset(
    {"write", "reserve", "truncate", "sync", "sync_dir", "create", "mkdir", "rmdir", "replace"}
    | {"unlink", "warm"}
)


class PowerCut(BaseException):
    """The machine is off."""


@dataclass(slots=True)
class Fault:
    """An error that calls of one operation meet, from the `first`-th matching call on."""

    operation: str
    error: int
    first: int = 1
    times: int | None = None
    path_prefix: str = ""
    seen: int = 0

    def meets(self, operation: str, path: str) -> bool:
        """Count a call; True if it has to fail."""
        if operation != self.operation or not path.startswith(self.path_prefix):
            return False
        self.seen += 1
        last = None if self.times is None else self.first + self.times
        return self.seen >= self.first and (last is None or self.seen < last)


class RecordedCalls:
    """What has been asked of a disk, and which of the next calls go wrong."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often each operation was called."""
        self.on_call: Callable[[str, str], None] | None = None
        """Called with operation and path before each one, for tests that look closer."""
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
        """Let calls of `operation` fail from the `first`-th one on, for ever or `times` times."""
        fault = Fault(operation, error, first, times, path_prefix)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """No more errors."""
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
