"""Resets that were made through this console, so that the last one of a group can be undone."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sparrowmq.admin.offsets import OffsetMove
from sparrowmq.protocol.message import MessageQueue

_MOST = 200


@dataclass(frozen=True, slots=True)
class Reset:
    """A move that was made."""

    topic: str
    time_ms: int
    user: str
    moves: tuple[OffsetMove, ...]

    @property
    def back(self) -> dict[MessageQueue, int]:
        """Where every queue was; those without progress are left where they are now."""
        return {each.queue: each.before for each in self.moves if each.before is not None}

    def gone_on(self, now: Sequence[OffsetMove]) -> int:
        """Messages that members have read since the reset, which going back repeats."""
        ends = {each.queue: each.after for each in self.moves}
        return sum(
            max(0, each.before - ends[each.queue])
            for each in now
            if each.before is not None and each.queue in ends
        )


class Resets:
    """The last reset of each group."""

    def __init__(self) -> None:
        self._by_group: OrderedDict[str, Reset] = OrderedDict()

    def keep(self, group: str, reset: Reset) -> None:
        """Remember it; the oldest one goes when there are too many."""
        self._by_group.pop(group, None)
        while len(self._by_group) >= _MOST:
            self._by_group.popitem(last=False)
        self._by_group[group] = reset

    def last(self, group: str) -> Reset | None:
        """What an undo would take back."""
        return self._by_group.get(group)

    def forget(self, group: str) -> None:
        """After an undo."""
        self._by_group.pop(group, None)
