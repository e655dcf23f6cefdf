"""A row of the scorecard and its result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass
class Scored:
    """A row of the table."""

    row: int
    fault: str
    counts: str = ""
    failures: list[str] = field(default_factory=list)
    simulated: int = 0
    """Clusters in virtual time, each from one seed; row 15 adds them up."""

    @property
    def is_met(self) -> bool:
        """Nothing went wrong."""
        return not self.failures


Row: TypeAlias = Callable[[int, bool], Scored]
"""Seed, and whether small; the result."""
