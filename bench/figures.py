"""Figures, what they have to be, and whether they are."""

from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any


class Sense(Enum):
    """What a target compares with."""

    TIMES_MORE = "≥ {bound:g} × Apache"
    TIMES_LESS = "≤ Apache ÷ {bound:g}"
    AT_MOST = "≤ {bound:,g}"
    AT_LEAST = "≥ {bound:,g}"


@dataclass(frozen=True)
class Target:
    """A bound on a figure."""

    sense: Sense
    bound: float

    def __str__(self) -> str:
        return self.sense.value.format(bound=self.bound)


@dataclass(frozen=True)
class Figure:
    """One line of the report."""

    work: str
    what: str
    unit: str
    ours: float
    apache: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """How many times better than Apache's where the target says what is better."""
        if not self.apache or not self.ours:
            return None
        if self.target is not None and self.target.sense is Sense.TIMES_LESS:
            return self.apache / self.ours
        return self.ours / self.apache

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; None without one, or with nothing to compare with."""
        if self.target is None:
            return None
        match self.target.sense:
            case Sense.AT_MOST:
                return self.ours <= self.target.bound
            case Sense.AT_LEAST:
                return self.ours >= self.target.bound
            case Sense.TIMES_MORE | Sense.TIMES_LESS:
                return None if self.ratio is None else self.ratio >= self.target.bound

    def to_dict(self) -> dict[str, object]:
        """For files."""
        return {
            "work": self.work,
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours,
            "apache": self.apache,
            "ratio": self.ratio,
            "target": None if self.target is None else str(self.target),
            "met": self.is_met,
        }


def times_more(bound: float) -> Target:
    """At least so many times Apache's figure."""
    return Target(Sense.TIMES_MORE, bound)


def times_less(bound: float) -> Target:
    """At most Apache's figure divided by this."""
    return Target(Sense.TIMES_LESS, bound)


def at_most(bound: float) -> Target:
    """No more than this, whatever Apache needs."""
    return Target(Sense.AT_MOST, bound)


def at_least(bound: float) -> Target:
    """No less than this, whatever Apache does."""
    return Target(Sense.AT_LEAST, bound)


def middle(rows: list[dict[str, Any]], name: str) -> float:
    """The median of a figure over runs."""
    return float(median(row[name] for row in rows))
