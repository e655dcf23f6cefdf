"""What one read of a queue is to find, and what it found on its way."""

from collections.abc import Callable, Container, Sequence
from typing import Protocol, TypeAlias

import msgspec

AcceptsRecord: TypeAlias = Callable[[bytes | memoryview], bool]


class Source(Protocol):
    """Where units and records come from. None means: not without waiting for the device."""

    def units(self, offset: int, count: int) -> bytes | None:
        """Up to `count` units; fewer at the end of a file, none if it is missing."""
        ...

    def log(self, log_offset: int, length: int) -> bytes | None:
        """Bytes of the log; fewer than asked for if they are gone."""
        ...


class ReadPlan(msgspec.Struct, gc=False):
    """One read of a queue, with everything it needs to be finished in another thread."""

    topic: str
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    max_count: int
    max_bytes: int
    accepts_tag: Container[int] | None
    accepts_record: AcceptsRecord | None
    min_log_offset: int
    own_from: int
    """Records from here on were written by this process and need no check."""
    scan_units: int
    gap_bytes: int
    file_size: int
    units_per_file: int
    damaged: Callable[[int, int, str], None]
    """Told log offset, size and reason."""


class Picked(msgspec.Struct, gc=False):
    """What a run of units gave."""

    scanned: int
    """Units that were looked at."""
    count: int = 0
    size: int = 0
    chunks: Sequence[bytes | memoryview] = ()
    any_gone: bool = False
    """Some record was no longer, or not properly, there."""
