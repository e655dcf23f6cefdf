"""Waiting longer after each failure, and not all at the same moment."""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Backoff:
    """1 s, 2 s, 4 s … up to a limit, each shortened by up to half at random: clients that lost a
    server together do not come back together."""

    first_s: float = 1.0
    longest_s: float = 30.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        doubled = min(failures - 1, 30)  # a float has no room for many more
        return min(self.longest_s, self.first_s * 2.0**doubled) * self.rng.uniform(0.5, 1.0)
