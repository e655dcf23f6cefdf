"""How long to wait before the next attempt: the only implementation of growing pauses.

All code that retries gets its pause here, so that no count of failures, however large, causes an
overflow: each pause is bounded, and so is every intermediate result.
"""

import random
from dataclasses import dataclass

_MOST_DOUBLINGS = 62
"""2 to this power is more than the ratio of any two durations that make sense."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_s`, twice that, four times … up to `longest_s`.

    With `rng` each pause is randomly shortened by up to half: clients that lost a server together
    do not return together.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    rng: random.Random | None = None

    def wait_s(self, failures: int) -> float:
        """How long to wait after this many failures in a row, 1 or more."""
        doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
        pause_s = min(self.longest_s, self.first_s * 2.0**doublings)
        return pause_s if self.rng is None else pause_s * self.rng.uniform(0.5, 1.0)
