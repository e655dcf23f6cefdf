"""Scorecard row 11: the order of an ordered group whose members join, leave, freeze and crash.

Seen from outside, the calls of handlers on one queue have to be one sequence:

    a: 0-3 │ a: 4-7 │ b: 8-11 │ b ✝ │ c: 10-13 │ …
                                      └ goes back, because b died before the broker knew of 10

Nothing is skipped, nobody goes back unless whoever was before it died or was frozen, and no call
begins before the last one has ended.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.churn import Call, History

KILLED_S = 5.0
FROZEN_S = 85.0
"""A lock lives 60 s, and the next rebalance comes 20 s later at the latest."""
_SHOWN = 3


@dataclass(frozen=True)
class Fault:
    """What happened to an owner: it died, or was stopped for a while."""

    member: str
    at_s: float
    until_s: float = float("inf")
    """When it resumed; never, if it died."""
    held: tuple[int, ...] = ()
    progress: dict[int, int] = field(default_factory=dict)
    """What the broker knew of it."""
    is_measured: bool = False
    """Whether the group had time to react before anything else happened."""

    @property
    def is_death(self) -> bool:
        """Whether the member is gone for good."""
        return self.until_s == float("inf")


@dataclass
class OrderHistory(History):
    """What an ordered group did."""

    faults: list[Fault] = field(default_factory=list)


@dataclass
class OrderResult:
    """What was found wrong."""

    seed: int
    messages: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    went_back: int = 0
    killed_s: float = 0.0
    """The longest until a dead owner's queue was consumed again."""
    frozen_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        counts = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.changes.items()))
        return (
            f"seed {self.seed}: {counts}, {self.messages} messages, went back {self.went_back} ×,"
            f" taken over in {self.killed_s:.1f} s from the dead and {self.frozen_s:.1f} s from the"
            f" frozen: {'; '.join(self.problems[:_SHOWN]) or 'nothing wrong'}"
        )


def judge_order(seed: int, history: OrderHistory) -> OrderResult:
    """Look at every call of every queue."""
    result = OrderResult(seed, changes=history.changes, messages=sum(history.stored.values()))
    calls: dict[int, list[Call]] = defaultdict(list)
    for call in sorted(history.calls, key=lambda call: call.began_s):
        calls[call.queue_id].append(call)
    for queue_id, stored in history.stored.items():
        _judge_queue(calls[queue_id], stored, history.faults, result)
    for fault in history.faults:
        if fault.is_measured:
            _measure(fault, calls, result)
    for kind, took_s, limit_s in (
        ("killed", result.killed_s, KILLED_S),
        ("frozen", result.frozen_s, FROZEN_S),
    ):
        if took_s > limit_s:
            result.problems.append(f"queues of a {kind} owner taken over after {took_s:.1f} s")
    return result


def _judge_queue(calls: list[Call], stored: int, faults: list[Fault], result: OrderResult) -> None:
    front, busy_until_s, done = 0, 0.0, 0
    before: Call | None = None
    for call in calls:
        first, last = call.offsets[0], call.offsets[-1]
        where = f"queue {call.queue_id} offset {first} by {call.member}"
        if list(call.offsets) != list(range(first, last + 1)):
            result.problems.append(f"{where}: {call.offsets} are not in order")
        if call.began_s < busy_until_s:
            result.problems.append(f"{where}: begins while another call runs")
        if first > front:
            result.problems.append(f"{where}: skips from {front}")
        elif first < front and before is not None:
            result.went_back += 1
            if not _may_go_back(before, call, faults):
                result.problems.append(f"{where}: goes back from {front} after {before.member}")
        front = last + 1
        busy_until_s = max(busy_until_s, _ends_s(call, faults))
        before = call
        if call.ended_s is not None:
            done = max(done, front)
    if done < stored:
        result.problems.append(f"queue of {stored} messages was consumed up to {done} only")


def _may_go_back(before: Call, call: Call, faults: Iterable[Fault]) -> bool:
    """Whether who was before died, or was frozen, after its call began and before this one did."""
    return any(
        fault.member == before.member
        and fault.at_s <= call.began_s
        and (fault.is_death or fault.until_s >= before.began_s)
        and call.offsets[0] >= fault.progress.get(call.queue_id, 0)
        for fault in faults
    )


def _ends_s(call: Call, faults: Iterable[Fault]) -> float:
    """When no member works on it any more: a dead or frozen member does not."""
    ends_s = call.ended_s if call.ended_s is not None else float("inf")
    for fault in faults:
        if fault.member == call.member and call.began_s <= fault.at_s < ends_s:
            ends_s = fault.at_s
    return ends_s


def _measure(fault: Fault, calls: dict[int, list[Call]], result: OrderResult) -> None:
    for queue_id in fault.held:
        later = (
            call.began_s
            for call in calls[queue_id]
            if call.began_s > fault.at_s and call.member != fault.member
        )
        took_s = next(later, float("inf")) - fault.at_s
        if fault.is_death:
            result.killed_s = max(result.killed_s, took_s)
        else:
            result.frozen_s = max(result.frozen_s, took_s)
