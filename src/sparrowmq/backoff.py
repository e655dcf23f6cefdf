"""How long to wait before the next attempt: the only place where pauses grow.

Whatever is repeated asks for its pause here, so that no count of failures, however large, becomes a
number that does not fit: each pause is bounded, and so is what is computed on the way to it.
"""

import random
from dataclasses import dataclass

_MOST_DOUBLINGS = 62
"""Any two durations a program can mean lie closer together than this."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_s`, twice that, four times … up to `longest_s`.

    With `rng` each pause is shortened by up to half at random: clients that lost a server together
    do not come back together.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    rng: random.Random | None = None

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row, 1 or more."""
        doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
        pause_s = min(self.longest_s, self.first_s * 2.0**doublings)
        return pause_s if self.rng is None else pause_s * self.rng.uniform(0.5, 1.0)
