"""Scorecard row 9: members that join, leave and crash; what their group did, and its judge.

A message is known by its queue and offset. It may be handled twice only if whoever handled it
first was killed before the broker knew of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

QUEUES = 64
SETTLED_S = 5.0
"""One owner per queue, so long after the last change at the latest."""
JOIN, LEAVE, KILL = "join", "leave", "kill"
_SHOWN = 3


@dataclass(slots=True)
class Call:
    """A handler was called with messages of one queue."""

    member: str
    queue_id: int
    offsets: tuple[int, ...]
    began_s: float
    ended_s: float | None = None
    """None: it never returned."""


@dataclass
class History:
    """What a group did, from outside."""

    calls: list[Call] = field(default_factory=list)
    killed: dict[str, dict[int, int]] = field(default_factory=dict)
    """Members that were killed, with the progress the broker knew of just before."""
    changes: Counter[str] = field(default_factory=Counter)
    settled_s: float = 0.0
    """From the last change until every queue had one owner."""
    stored: dict[int, int] = field(default_factory=dict)
    """How many messages each queue holds in the end."""


@dataclass
class ChurnResult:
    """What was found wrong, and how much was looked at."""

    seed: int
    messages: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    redelivered: int = 0
    """By crashes, within what was in flight."""
    settled_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        counts = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.changes.items()))
        problems = "; ".join(self.problems[:_SHOWN]) or "nothing wrong"
        return (
            f"seed {self.seed}: {counts}, {self.messages} messages, {self.redelivered} redelivered"
            f" after crashes, settled in {self.settled_s:.1f} s: {problems}"
        )


def judge(seed: int, history: History) -> ChurnResult:
    """Look for lost messages, for deliveries that nothing explains, for queues without owner."""
    result = ChurnResult(seed, changes=history.changes, settled_s=history.settled_s)
    result.messages = sum(history.stored.values())
    done: set[tuple[int, int]] = set()
    earlier: dict[tuple[int, int], str] = {}
    unexplained: Counter[str] = Counter()
    for call in sorted(history.calls, key=lambda call: call.began_s):
        for offset in call.offsets:
            message = call.queue_id, offset
            if call.ended_s is not None:
                done.add(message)
            before = earlier.get(message)
            if before is not None:
                if is_in_flight(history.killed.get(before), *message):
                    result.redelivered += 1
                else:
                    unexplained[f"queue {call.queue_id} offset {offset} by {before} and again"] += 1
            earlier[message] = call.member
    lost = [
        (queue_id, offset)
        for queue_id, count in history.stored.items()
        for offset in range(count)
        if (queue_id, offset) not in done
    ]
    result.problems += _described("lost", lost) + _described("handled twice", unexplained)
    if history.settled_s > SETTLED_S:
        result.problems.append(f"one owner per queue only after {history.settled_s:.1f} s")
    return result


def is_in_flight(killed_at: Mapping[int, int] | None, queue_id: int, offset: int) -> bool:
    """Whether a member's death explains that a message it handled is delivered again."""
    return killed_at is not None and offset >= killed_at.get(queue_id, 0)


def _described(kind: str, found: Iterable[object]) -> list[str]:
    every = list(found)
    if not every:
        return []
    return [f"{len(every)} {kind}: {', '.join(map(str, every[:_SHOWN]))}"]


def is_shared_out(held: Iterable[Iterable[int]], queues: int = QUEUES) -> bool:
    """Whether each queue has exactly one owner, and the members the same load, give or take one."""
    shares = [list(queue_ids) for queue_ids in held]
    owners = Counter(queue_id for share in shares for queue_id in share)
    loads = [len(share) for share in shares]
    is_fair = bool(loads) and max(loads) - min(loads) <= 1
    return is_fair and len(owners) == queues and set(owners.values()) == {1}
