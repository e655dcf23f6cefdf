"""Figures, their targets, and whether they are met."""

from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any


class Sense(Enum):
    """What a target compares with."""

    TIMES_MORE = "≥ {bound:g} × peer"
    TIMES_LESS = "≤ peer ÷ {bound:g}"
    NO_MORE = "≤ {bound:g} × peer"
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
    peer: float | None = None
    """The figure of the peer: Apache's broker or client, Kafka, or an empty broker."""
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """Ours ÷ the peer's; the other way round where the target is a multiple that is better."""
        if not self.peer or not self.ours:
            return None
        if self.target is not None and self.target.sense is Sense.TIMES_LESS:
            return self.peer / self.ours
        return self.ours / self.peer

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
            case Sense.NO_MORE:
                return None if self.ratio is None else self.ratio <= self.target.bound

    def to_dict(self) -> dict[str, object]:
        """For files."""
        return {
            "work": self.work,
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "ratio": self.ratio,
            "target": None if self.target is None else str(self.target),
            "met": self.is_met,
        }


def times_more(bound: float) -> Target:
    """At least this multiple of the peer's figure."""
    return Target(Sense.TIMES_MORE, bound)


def times_less(bound: float) -> Target:
    """At most the peer's figure divided by this."""
    return Target(Sense.TIMES_LESS, bound)


def no_more(bound: float) -> Target:
    """At most this multiple of the peer's figure, where less is better."""
    return Target(Sense.NO_MORE, bound)


def at_most(bound: float) -> Target:
    """No more than this, whatever the peer needs."""
    return Target(Sense.AT_MOST, bound)


def at_least(bound: float) -> Target:
    """No less than this, whatever the peer does."""
    return Target(Sense.AT_LEAST, bound)


def middle(rows: list[dict[str, Any]], name: str) -> float:
    """The median of a figure over runs."""
    return float(median(row[name] for row in rows))
