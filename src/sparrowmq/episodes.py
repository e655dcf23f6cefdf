"""Episodes of repeated or lasting events, and which occurrences are worth a log line.

When a server is away every request fails, and when a disk is full every message is refused: a line
for each would hide everything else, and one line for all would be forgotten. An episode is logged
when it begins, at intervals while it lasts, and when it ends; occurrences in between are counted.

    occurs  occurs  occurs  …  occurs  …            the owner drops it
    line    -       -          line, once a minute  line: it lasted 73 s
"""

import re
from dataclasses import dataclass

REMIND_S = 60.0
_NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(slots=True)
class Episode:
    """One episode, from its first occurrence on. Its owner passes the time and writes the lines."""

    began_s: float
    every_s: float = REMIND_S
    """The time between two lines while it lasts."""
    shown: int = 1
    """How many occurrences at the beginning each get a line."""
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
        """Whether it has happened only once so far."""
        return self.count == 1

    def lasted_s(self, now_s: float) -> float:
        """How long it has lasted."""
        return now_s - self.began_s


def without_numbers(reason: str) -> str:
    """What reasons have in common that differ only in numbers, such as offsets of a growing log."""
    return _NUMBER.sub("", reason)


class Causes:
    """Why peers fail repeatedly: an episode for each peer and reason.

    Reasons that differ only in numbers count as the same.
    """

    def __init__(self, most: int = 100) -> None:
        """At most `most` episodes are kept; beyond that the oldest are forgotten."""
        self._most = most
        self._episodes: dict[tuple[str, str], Episode] = {}

    def occurs(self, peer: str, reason: str, now_s: float) -> bool:
        """It happened once more. Whether that is worth a line."""
        key = peer, without_numbers(reason)
        episode = self._episodes.get(key)
        if episode is None:
            episode = self._episodes[key] = Episode(now_s)
            if len(self._episodes) > self._most:
                del self._episodes[next(iter(self._episodes))]
        return episode.occurs(now_s)

    def end(self, peer: str) -> None:
        """Note that the peer succeeded: its next failure begins a new episode."""
        for key in [key for key in self._episodes if key[0] == peer]:
            del self._episodes[key]
