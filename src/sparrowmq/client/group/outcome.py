"""What became of a step of a rebalance."""

import math
from typing import NamedTuple

NEVER = math.inf


class Outcome(NamedTuple):
    """What became of a step."""

    changed: bool
    again_s: float = NEVER
    """When to try again what did not succeed."""
