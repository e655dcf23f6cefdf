"""The rules by which tables are copied between brokers of one name. Nothing here does I/O.

```
what changed since?    RecentChanges: the keys of a table in the order of their last change
apply it now?          when_to_apply: a state belongs to a point in the log, and waits for it
which progress counts? merged: the later one, no matter at which broker it was committed
```

Progress of a group in a queue is a pair: the number of its last rewind, and the offset. Members
move the offset forward. A reset, a commit that moves back and a removal are rewinds; only a master
makes them, and each gets a higher number than all earlier ones. The larger pair is later, so copies
can be merged in any order, any number of times: progress that was made at a slave while the master
was away is kept, and a reset is not undone by earlier commits.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

_MOST_REMEMBERED = 10_000
"""The limit of changed keys kept per table; a slave that lacks more gets the whole table."""


class RecentChanges(Generic[K]):
    """Which keys of a table changed last. A change is one number for all the keys it touches."""

    def __init__(self, most: int = _MOST_REMEMBERED) -> None:
        self._most = most
        self._changed: OrderedDict[K, int] = OrderedDict()
        self.count = 0
        """The number of the last change."""
        self._forgotten = 0
        """Some keys of the changes up to this number are forgotten."""

    def note(self, keys: Collection[K]) -> None:
        """These keys have changed."""
        self.count += 1
        if len(keys) > self._most:
            # Not all of them can be remembered, and then nothing up to this change is known.
            self._changed.clear()
            self._forgotten = self.count
            return
        for key in keys:
            self._changed[key] = self.count
            self._changed.move_to_end(key)
        while len(self._changed) > self._most:
            _, self._forgotten = self._changed.popitem(last=False)

    def since(self, count: int) -> list[K] | None:
        """The keys that changed after change number `count`; None if that is not known."""
        if not self._forgotten <= count <= self.count:
            return None
        found = []
        for key, changed in reversed(self._changed.items()):
            if changed <= count:
                break
            found.append(key)
        return found


class When(Enum):
    """When a slave may apply a state of its master's tables."""

    NOW = "now"
    LATER = "when the log has reached the state"
    NEVER = "the master has started again, or another one is followed"


def when_to_apply(*, life: int, log_end: int, followed_life: int, own_log_end: int) -> When:
    """Whether a state fits this slave's log: the state was taken in `life` of the master, when its
    log ended at `log_end`.

    Applied too early, the progress of delays would skip messages that have not been delivered in
    this log, and a deleted topic would get back what was stored before its deletion.
    """
    if life != followed_life:
        return When.NEVER
    return When.NOW if own_log_end >= log_end else When.LATER


class OffsetChange(NamedTuple):
    """A group's current progress in a queue, as journals and copies record it.

    One value holds both the offset and the reset, so that progress is never replayed without the
    end of the reset that preceded it.
    """

    key: str
    """`topic@group`."""
    queue_id: int
    offset: int
    """-1: removed."""
    is_reset: bool = False
    """Whether a reset to the offset is pending. Journals of older versions lack this field."""
    rewind: int = 0
    """The number of the last rewind; 0 if there was none."""


def merged(one: OffsetChange, other: OffsetChange) -> OffsetChange:
    """The later of two changes: the one with the later rewind, or further on after the same rewind.

    Commits are ignored while a reset is pending. So the one that is further on has seen the reset
    end, and of two equal ones the one in which a member has applied the reset is later.
    """
    place, other_place = (one.rewind, one.offset), (other.rewind, other.offset)
    if place == other_place:
        return other if one.is_reset else one
    return max(one, other, key=lambda change: (change.rewind, change.offset))
