"""What repeats or lasts, and which of its occurrences are worth a line in a log.

A server that is away fails every request, and a full disk refuses every message: a line for each
would hide everything else, and one line for all would be forgotten. An episode is logged when it
begins, at intervals while it lasts, and when it ends; what happens in between is counted.

    occurs  occurs  occurs  …  occurs  …            the owner drops it
    line    -       -          line, once a minute  line: it lasted 73 s
"""

import re
from dataclasses import dataclass

REMIND_S = 60.0
_NUMBER = re.compile(r"\d[\d,.]*")


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


class Causes:
    """Why a peer fails again and again: an episode for each peer and reason.

    Numbers in a reason, such as offsets of a log that grows, do not make it another one.
    """

    def __init__(self, most: int = 100) -> None:
        """At most `most` episodes are kept; beyond that the oldest are forgotten."""
        self._most = most
        self._episodes: dict[tuple[str, str], Episode] = {}

    def occurs(self, peer: str, reason: str, now_s: float) -> bool:
        """It happened once more. Whether that is worth a line."""
        key = peer, _NUMBER.sub("", reason)
        episode = self._episodes.get(key)
        if episode is None:
            episode = self._episodes[key] = Episode(now_s)
            if len(self._episodes) > self._most:
                del self._episodes[next(iter(self._episodes))]
        return episode.occurs(now_s)

    def end(self, peer: str) -> None:
        """The peer succeeded: what fails from now on is news."""
        for key in [key for key in self._episodes if key[0] == peer]:
            del self._episodes[key]
