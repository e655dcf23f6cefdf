"""What the store asks of the key index; `index.KeyIndex` does it, tests may use `NoIndex`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

IndexRequest: TypeAlias = tuple[str, str, str, int, int]
"""Topic, unique id, keys separated by spaces, log offset, store timestamp."""


class Candidates(Protocol):
    """Log offsets, newest first; `is_cut` when there may be more than were asked for."""

    @property
    def log_offsets(self) -> Sequence[int]:
        """Where the messages lie."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether there may be more."""
        ...


class NoCandidates(NamedTuple):
    """Nothing was found."""

    log_offsets: Sequence[int] = ()
    is_cut: bool = False


class MessageIndex(Protocol):
    """Finds messages by key. Derived from the log: what it lost is dispatched to it again."""

    def recover(self, log_end: int, *, trust_unmarked: bool = False) -> int:
        """Forget entries at or behind `log_end`, called once before anything else.

        Returns the log offset from which records have to be added again: `log_end` when nothing is
        missing, 0 when the files are gone. Files without a mark of ours are Apache's, and used only
        if `trust_unmarked` says that it was stopped properly.
        """
        ...

    def add(self, request: IndexRequest, /) -> None:
        """Remember a message; must cost next to nothing."""
        ...

    def add_all(self, requests: Iterable[IndexRequest]) -> None:
        """`add` for each, in their order; some may have neither id nor keys."""
        ...

    def build(self) -> object:
        """Make entries of everything added so far. Raises DiskFull, keeping what is not written."""
        ...

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> Candidates:
        """Log offsets of messages that may have this key, newest first; hashes collide."""
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

    def abandon(self) -> None:
        """Close the files as they are, as after an error; also after `close`."""
        ...


class NoIndex:
    """Finds nothing and costs nothing."""

    durable_timestamp = 0

    def recover(self, log_end: int, *, trust_unmarked: bool = False) -> int:
        """Nothing is missing."""
        return log_end

    def add(self, request: IndexRequest, /) -> None:
        """Forget it."""

    def add_all(self, requests: Iterable[IndexRequest]) -> None:
        """Forget them."""

    def build(self) -> object:
        """Nothing to do."""

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> Candidates:
        """Nothing."""
        return NoCandidates()

    def begin_sync(self) -> Sequence[str]:
        """Nothing to sync."""
        return ()

    def end_sync(self) -> None:
        """Nothing was synced."""

    def clean(self, min_log_offset: int) -> None:
        """Nothing to delete."""

    def close(self) -> None:
        """Nothing is open."""

    def abandon(self) -> None:
        """Nothing is open."""
