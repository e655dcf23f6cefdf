"""What the store asks of the key index; `index.KeyIndex` does it, tests may use `NoIndex`."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

IndexRequest: TypeAlias = tuple[str, str, str, int, int]
"""Topic, unique id, keys separated by spaces, log offset, store timestamp."""


class MessageIndex(Protocol):
    """Finds messages by key. Derived from the log: what it lost is dispatched to it again."""

    def recover(self, log_end: int) -> int:
        """Forget entries at or behind `log_end`, called once before anything else.

        Returns the log offset from which records have to be added again: `log_end` when nothing is
        missing, 0 when the files are gone.
        """
        ...

    def add(self, request: IndexRequest, /) -> None:
        """Remember a message; must cost next to nothing. Keys are separated by spaces."""
        ...

    def build(self) -> None:
        """Make entries of everything added so far. Raises DiskFull, keeping what is not written."""
        ...

    def begin_sync(self) -> Sequence[str]:
        """Paths that have to be synced for the entries built so far to become durable."""
        ...

    def end_sync(self) -> None:
        """They have been synced."""
        ...

    @property
    def durable_timestamp(self) -> int:
        """Store time of the last message whose entries are durable, for Apache's checkpoint."""
        ...

    def clean(self, min_log_offset: int) -> None:
        """Delete files that only lead to records before `min_log_offset`."""
        ...

    def close(self) -> None:
        """Build what was added and make it durable, then close the files."""
        ...


class NoIndex:
    """Finds nothing and costs nothing."""

    durable_timestamp = 0

    def recover(self, log_end: int) -> int:
        """Nothing is missing."""
        return log_end

    def add(self, request: IndexRequest, /) -> None:
        """Forget it."""

    def build(self) -> None:
        """Nothing to do."""

    def begin_sync(self) -> Sequence[str]:
        """Nothing to sync."""
        return ()

    def end_sync(self) -> None:
        """Nothing was synced."""

    def clean(self, min_log_offset: int) -> None:
        """Nothing to delete."""

    def close(self) -> None:
        """Nothing is open."""
