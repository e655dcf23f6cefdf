"""Reads that never wait for the device: only of what the page cache holds.

```
cachestat(2)            is every page of the range there? no ▶ None, and nothing was started
preadv2, RWF_NOWAIT     copy them; a page that is still being read ▶ None
```

RWF_NOWAIT alone is not enough. It never waits for the data, but a miss starts read-ahead first, and
so does a hit on a page that a sequential reader left marked; submitting up to 8 MiB of reads took
20 ms on the loop. So cachestat comes first, which costs a warm read 1.4 µs, and the descriptor has
POSIX_FADV_RANDOM, so that misses read no more than what was requested (decision 34).
"""

import errno
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

_CACHESTAT = 451
"""The system call's number, on every architecture but alpha. Since Linux 6.5."""
_PAGE = mmap.PAGESIZE
_WOULD_BLOCK = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})

PagesHeld: TypeAlias = Callable[[int, int], int | None]
"""How many pages of a range (offset, length) are in memory; None if the file system cannot tell."""


class CachedReads:
    """Reads of one open file, for one thread."""

    def __init__(
        self, descriptor: int, counter: Callable[[int], PagesHeld | None] | None = None
    ) -> None:
        """`counter` is `page_counter`, unless a test replaces it."""
        self._descriptor = descriptor
        self._flags = getattr(os, "RWF_NOWAIT", 0)
        self.can_tell = self._flags != 0 and _takes_nowait(descriptor, self._flags)
        """If False, it only shows afterwards whether a read waited for the device."""
        self._pages_held: PagesHeld | None = None
        if self.can_tell:
            self._pages_held = (counter or page_counter)(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, offset: int, length: int) -> bytes | None:
        """Up to `length` bytes, fewer at the end of the file; None if they are not in memory.

        Only where `can_tell`.
        """
        if self._pages_held is not None and not self._is_held(offset, length):
            return None
        buffer = bytearray(length)
        try:
            got = os.preadv(self._descriptor, [buffer], offset, self._flags)
        except OSError as error:
            if error.errno in _WOULD_BLOCK:
                return None
            raise
        if got == length:
            return bytes(buffer)
        return bytes(buffer[:got]) if offset + got >= self._size() else None

    def _is_held(self, offset: int, length: int) -> bool:
        assert self._pages_held is not None
        if length <= 0:
            return True
        held = self._pages_held(offset, length)
        if held is None:
            self._pages_held = None  # this file system does not support it
            return True
        if held > (offset + length - 1) // _PAGE - offset // _PAGE:
            return True
        inside = self._size() - offset  # past the end of the file there are no pages
        return inside < length and self._is_held(offset, inside)

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size


def _takes_nowait(descriptor: int, flags: int) -> bool:
    """Whether the file system supports RWF_NOWAIT: overlay and FUSE do not."""
    try:
        # At the end of the file, where there is nothing to read and no reason to wait.
        os.preadv(descriptor, [bytearray(1)], os.fstat(descriptor).st_size, flags)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        if error.errno not in _WOULD_BLOCK:
            raise
    return True


def page_counter(descriptor: int) -> PagesHeld | None:
    """Counts pages with cachestat; None if Linux does not have it, or does not permit it."""
    syscall = _cachestat()
    if syscall is None:
        return None
    import ctypes

    asked, found = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    # Created once: converting arguments would cost as much as the call.
    arguments = (
        *(ctypes.c_long(_CACHESTAT), ctypes.c_long(descriptor)),
        *(ctypes.byref(asked), ctypes.byref(found), ctypes.c_long(0)),
    )

    def pages_held(offset: int, length: int) -> int | None:
        asked[0] = offset
        asked[1] = length
        return None if syscall(*arguments) else found[0]

    return pages_held


@cache
def _cachestat() -> Callable[..., Any] | None:
    """libc's `syscall`, if cachestat can be called with it."""
    if sys.platform != "linux":
        return None
    import ctypes  # here: clients replace files too, and never read them like this

    # PyDLL keeps the GIL, as the call does not wait.
    syscall = ctypes.PyDLL(None, use_errno=True).syscall
    # A kernel with the call answers EBADF; others, and sandboxes, give another error.
    syscall(ctypes.c_long(_CACHESTAT), ctypes.c_long(-1), None, None, ctypes.c_long(0))
    return syscall if ctypes.get_errno() == errno.EBADF else None
