"""How long sends wait until they are safe, in the classes that Apache's tools use.

A send that waits for nothing is answered in the callback that reads it, in less than a millisecond,
and is not timed. The others are answered in groups, one sync or acknowledgement each: a group is
timed once, by its oldest send.
"""

from bisect import bisect_left
from collections import deque

_CLASSES = (
    (0, "[<=0ms]"),
    (10, "[0~10ms]"),
    (50, "[10~50ms]"),
    (100, "[50~100ms]"),
    (200, "[100~200ms]"),
    (500, "[200~500ms]"),
    (1_000, "[500ms~1s]"),
    (2_000, "[1~2s]"),
    (3_000, "[2~3s]"),
    (4_000, "[3~4s]"),
    (5_000, "[4~5s]"),
    (10_000, "[5~10s]"),
)
"""Upper bounds and names, as in StoreStatsService; the last class has no bound."""
_ENDS_MS = tuple(end for end, _ in _CLASSES)
_NAMES = (*(name for _, name in _CLASSES), "[10s~]")
_MINUTE = 7
"""The number of marks of the last minute, ten seconds apart."""


class PutTimes:
    """Counts sends by how long they waited."""

    def __init__(self) -> None:
        self.longest_ms = 0
        """The longest wait since the start."""
        self.counts = [0] * len(_NAMES)
        """Sends that waited, by class, since the start."""
        self._marks: deque[tuple[int, ...]] = deque([tuple(self.counts)], maxlen=_MINUTE)

    def note(self, sends: int, wait_s: float) -> None:
        """Count `sends` that were answered together, the oldest after `wait_s`."""
        wait_ms = wait_s * 1000
        self.counts[bisect_left(_ENDS_MS, wait_ms)] += sends
        self.longest_ms = max(self.longest_ms, round(wait_ms))

    def mark(self) -> None:
        """Set a mark, because ten seconds have passed."""
        self._marks.append(tuple(self.counts))

    def distribution(self, puts: int) -> str:
        """All `puts` of the last minute by class; those that did not wait are in the first."""
        waited = [now - then for now, then in zip(self.counts, self._marks[0], strict=True)]
        waited[0] += max(0, puts - sum(waited))
        return "".join(f"{name}:{count} " for name, count in zip(_NAMES, waited, strict=True))
