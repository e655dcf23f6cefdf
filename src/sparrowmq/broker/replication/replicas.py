"""Which slaves have which part of the log, and what that allows the master to promise.

```
log  |=========================|-----------|.......|
     0             confirmed ──┘  visible ─┘   end ─┘
```

The log is confirmed up to the offset that enough copies have acknowledged. Consumers of a master
that replicates synchronously see what is confirmed, and what was given up: stored, waited for, and
answered with SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT, so that its sender knows.

Votes count slaves, not connections: a slave that connects twice is one copy. An acknowledgement
holds as long as its connection, because a slave that comes back may have lost its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Copies(Enum):
    """What a stored message can expect from the slaves."""

    ENOUGH = "enough copies have it"
    TO_COME = "enough slaves follow closely; they are waited for"
    MISSING = "too few slaves follow closely, so waiting is useless"


@dataclass(slots=True)
class Replicas:
    """The slaves of a master, by broker id."""

    wanted: int
    """Copies that an acknowledgement guarantees, including the master's own."""
    least: int
    """With fewer copies in sync, messages are refused before they are stored."""
    max_gap_bytes: int
    """A slave that is further behind is not in sync."""
    confirmed: int = 0
    """Enough copies have everything before this log offset."""
    given_up: int = 0
    """Nothing before this log offset is waited for."""
    _acknowledged: dict[int, int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)
    """The same, including slaves that are gone."""

    @property
    def acknowledged(self) -> Mapping[int, int]:
        """The log offset up to which each connected slave has everything."""
        return self._acknowledged

    @property
    def visible_end(self) -> int:
        """The log offset up to which consumers may see messages; it never moves back."""
        return max(self.confirmed, self.given_up)

    def acknowledge(self, slave_id: int, log_offset: int) -> bool:
        """A slave has everything before `log_offset`; returns whether that confirms more.

        The first report of a connection counts like any other: it replaces what an earlier
        connection of this slave said, even if it is lower.
        """
        self._acknowledged[slave_id] = self._last[slave_id] = log_offset
        return self._confirm()

    def last_acknowledged(self, slave_id: int) -> int:
        """What a slave had when it was last heard from; 0 for one never heard from."""
        return self._last.get(slave_id, 0)

    def disconnect(self, slave_id: int) -> None:
        """A slave is gone. What it confirmed stays confirmed: it was true at the time."""
        self._acknowledged.pop(slave_id, None)

    def give_up(self, log_offset: int) -> None:
        """A sender learned that copies are missing: consumers may see its message."""
        self.given_up = max(self.given_up, log_offset)

    def in_sync(self, log_end: int) -> int:
        """How many copies are close to the end of the log, including the master's own."""
        lowest = log_end - self.max_gap_bytes
        return 1 + sum(offset >= lowest for offset in self._acknowledged.values())

    def accepts(self, log_end: int) -> bool:
        """Whether enough copies are in sync for a message to be stored at all."""
        return self.least <= 1 or self.in_sync(log_end) >= self.least

    def copies_of(self, end_offset: int, log_end: int) -> Copies:
        """What a message that ends at `end_offset` of a log that ends at `log_end` can expect."""
        if end_offset <= self.confirmed or self.wanted <= 1:
            return Copies.ENOUGH
        return Copies.TO_COME if self.in_sync(log_end) >= self.wanted else Copies.MISSING

    def _confirm(self) -> bool:
        slaves_wanted = self.wanted - 1
        if not 0 < slaves_wanted <= len(self._acknowledged):
            return False
        reached = sorted(self._acknowledged.values(), reverse=True)[slaves_wanted - 1]
        if reached <= self.confirmed:
            return False
        self.confirmed = reached
        return True
