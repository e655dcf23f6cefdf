"""Scorecard row 10: what a broker must still guarantee its clients when it is killed over and over.

progress     a commit that was answered before a kill is never forgotten, and none is invented
plain        every acknowledged message is delivered, and only what was just consumed comes again
delayed      every acknowledged message is delivered, none before its time
transactions what was committed is delivered, what was rolled back never is
"""

from collections import defaultdict
from dataclasses import dataclass, field

_SHOWN = 3


@dataclass
class Commits:
    """What one group committed in one queue between two kills, and what was left of it."""

    attempted: int = 0
    answered: list[int] = field(default_factory=list)
    found: int | None = None
    """What the next life of the broker knew; None is a reset."""

    def problem(self) -> str:
        """Empty when the progress is what it may be."""
        kept = max(self.answered, default=0)
        if self.found is None:
            return f"progress {kept} was reset" if kept else ""
        if self.found < kept:
            return f"progress {kept} became {self.found}"
        if self.found > self.attempted:
            return f"progress {self.found} was never reached, {self.attempted} was"
        return ""


@dataclass
class Delivery:
    """A message reached a handler."""

    topic: str
    queue_id: int
    offset: int
    body: bytes
    at_s: float
    at_ms: int
    life: int = 0
    """Of the broker that delivered it."""


@dataclass
class Promises:
    """What was acknowledged and decided, and everything that was delivered."""

    plain: set[bytes] = field(default_factory=set)
    due_ms: dict[bytes, int] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    rolled_back: set[bytes] = field(default_factory=set)
    deliveries: list[Delivery] = field(default_factory=list)
    kills: int = 0
    commits: list[Commits] = field(default_factory=list)
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    """By life and plain queue: how far the consumers are, as the broker told last."""

    def problems(self) -> list[str]:
        """Every broken promise."""
        seen: dict[bytes, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            seen[delivery.body].append(delivery)
        found = [text for commits in self.commits if (text := commits.problem())]
        if self.commits and not any(commits.answered for commits in self.commits):
            found.append("no progress was ever committed")
        found += _listed("plain messages lost", self.plain - seen.keys())
        found += _listed("delayed messages lost", self.due_ms.keys() - seen.keys())
        early = {
            body
            for body, due_ms in self.due_ms.items()
            if any(delivery.at_ms < due_ms for delivery in seen.get(body, ()))
        }
        found += _listed("delayed messages early", early)
        found += _listed("committed transactions lost", self.committed - seen.keys())
        found += _listed("rolled back transactions delivered", self.rolled_back & seen.keys())
        return found + _listed("delivered again without need", self._needless())

    def _needless(self) -> set[bytes]:
        """Handled again though the broker knew of it before its death."""
        handled: dict[tuple[int, int], Delivery] = {}
        needless = set()
        plain = (one for one in self.deliveries if one.body in self.plain)
        for delivery in sorted(plain, key=lambda one: one.at_s):
            message = delivery.queue_id, delivery.offset
            before = handled.get(message)
            if before is not None and self._was_safe(before, delivery.life):
                needless.add(delivery.body)
            handled[message] = delivery
        return needless

    def _was_safe(self, delivery: Delivery, next_life: int) -> bool:
        if delivery.life == next_life:
            return True  # no crash in between
        return self.known.get((delivery.life, delivery.queue_id), 0) > delivery.offset

    def repeated(self) -> int:
        """How many deliveries of stored messages were not the first."""
        places = {(one.topic, one.queue_id, one.offset) for one in self.deliveries}
        return len(self.deliveries) - len(places)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {len(self.plain)} plain, {len(self.due_ms)} delayed,"
            f" {len(self.committed)} committed, {len(self.rolled_back)} rolled back,"
            f" {self.repeated()} delivered again"
        )


def _listed(kind: str, bodies: set[bytes]) -> list[str]:
    if not bodies:
        return []
    return [f"{len(bodies)} {kind}: {b', '.join(sorted(bodies)[:_SHOWN]).decode()}"]
