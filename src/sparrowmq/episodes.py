"""What repeats or lasts, and which of its occurrences are worth a line in a log.

A server that is away fails every request, and a full disk refuses every message: a line for each
would hide everything else, and one line for all would be forgotten. An episode is logged when it
begins, at intervals while it lasts, and when it ends; what happens in between is counted.

    occurs  occurs  occurs  …  occurs  …            the owner drops it
    line    -       -          line, once a minute  line: it lasted 73 s
"""

from dataclasses import dataclass

REMIND_S = 60.0


@dataclass(slots=True)
class Episode:
    """One of them, from its first occurrence on. Its owner passes the time and writes the lines."""

    began_s: float
    every_s: float = REMIND_S
    """The time between two lines while it lasts."""
    shown: int = 1
    """How many occurrences at its beginning get a line of their own."""
    count: int = 0
    """Occurrences so far."""
    unlogged: int = 0
    """Occurrences since the last line."""
    _logged_s: float = 0.0

    def occurs(self, now_s: float) -> bool:
        """It happened once more. Whether that is worth a line."""
        self.count += 1
        if self.count > self.shown and now_s - self._logged_s < self.every_s:
            self.unlogged += 1
            return False
        self._logged_s = now_s
        self.unlogged = 0
        return True

    @property
    def is_new(self) -> bool:
        """Whether it happened only once so far."""
        return self.count == 1

    def lasted_s(self, now_s: float) -> float:
        """How long it has lasted."""
        return now_s - self.began_s
