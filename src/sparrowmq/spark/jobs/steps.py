"""What a job tells while it runs: one step after the other, each named by what is done now."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Step:
    """Something that has just been done."""

    name: str
    rows: int = 0
    """Messages that this step is about."""
    done: int = 0
    """Messages done in this run and earlier ones."""
    of: int | None = None
    """Messages to do in all, where that is known."""


Tell: TypeAlias = Callable[[Step], None]


def tell_nobody(step: Step) -> None:
    """For callers that do not want to know."""
