"""What a rebalance decides about each queue, and why, as a value that the log prints.

            not held                held
assigned    take, or wait           keep
otherwise   (nothing to decide)     drop, or wait until its handlers have finished

A queue that is assigned and held but must restart is dropped and taken again.
"""

import logging
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

from sparrowmq.clock import Clock
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.rebalance_report import HeldSince, RebalanceReport, ReportedMove

_MOST_MOVES = 100
"""How many changes a member remembers for operators."""
_SHARE = "share"
"""The action reported when the number of members or queues changed."""


class Action(StrEnum):
    """What happens to a queue."""

    DROP = "drop"
    KEEP = "keep"
    TAKE = "take"
    WAIT = "wait"


class Reason(StrEnum):
    """Why it happens."""

    # keep, take
    ASSIGNED = "assigned to this member"
    BROADCAST = "every member of a broadcasting group reads every queue"
    CHOSEN = "assigned manually"
    # drop
    ASSIGNED_ELSEWHERE = "assigned to another member"
    NOT_IN_ROUTE = "no longer in the route of its topic"
    NOT_SUBSCRIBED = "its topic is no longer subscribed"
    NOT_CHOSEN = "no longer assigned manually"
    SILENT = "not pulled for too long, restarts"
    INTERRUPTED = "assigned again while it was given up, restarts"
    RESET = "an operator reset its offset, restarts"
    SHORTENED = "its broker lost messages, restarts"
    LOST = "another member may have had its lock"
    # wait
    HANDLERS_RUN = "given up when its handlers have finished"
    OWN_HANDLER_RUNS = "a handler of this member still works on it"
    LOCKED = "locked by another member"
    LOCK_UNKNOWN = "its broker did not answer the lock request"
    START_UNKNOWN = "its start offset could not be read"


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """One queue: what happens to it, why, and further details."""

    queue: MessageQueue
    action: Action
    reason: Reason
    detail: str = field(default="", compare=False)
    """Where a taken queue starts, which progress was stored, or the text of an error."""
    until_ms: int | None = field(default=None, compare=False)
    """When a wait ends at the latest; None if it has no limit."""

    def __str__(self) -> str:
        queue = self.queue
        text = f"{self.action} {queue.topic} {queue.broker_name} {queue.queue_id}: {self.reason}"
        return f"{text}; {self.detail}" if self.detail else text


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """The decisions for the queues of one topic, in queue order."""

    decisions: tuple[QueueDecision, ...]
    share: str = ""
    """How many queues and members there are, and how many queues this member gets, in words."""
    failure: str = ""
    """Why the last round failed and changed nothing; empty if it did not fail."""

    def reasons(self, action: Action) -> dict[MessageQueue, Reason]:
        """The queues with this action, each with its reason."""
        return {one.queue: one.reason for one in self.decisions if one.action is action}


def plan_rebalance(
    held: Set[MessageQueue],
    assigned: Set[MessageQueue],
    in_route: Set[MessageQueue],
    restarting: Mapping[MessageQueue, Reason],
    why: Reason = Reason.ASSIGNED,
) -> RebalancePlan:
    """How to get from the queues a member holds to those it should hold.

    `restarting` names queues that restart if they are held and assigned; `why` is the reason why
    the assigned queues are this member's.
    """
    decisions = []
    for queue in sorted(held | assigned):
        if queue in assigned:
            if queue not in held:
                decisions.append(QueueDecision(queue, Action.TAKE, why))
            elif queue in restarting:
                decisions.append(QueueDecision(queue, Action.DROP, restarting[queue]))
                decisions.append(QueueDecision(queue, Action.TAKE, why))
            else:
                decisions.append(QueueDecision(queue, Action.KEEP, why))
        else:
            reason = Reason.ASSIGNED_ELSEWHERE if queue in in_route else Reason.NOT_IN_ROUTE
            decisions.append(QueueDecision(queue, Action.DROP, reason))
    return RebalancePlan(tuple(decisions))


class RebalanceLog:
    """The last decision about each queue, as it was carried out; each change is one log line.

    A round that changes nothing prints no decisions, however often it is repeated: neither a kept
    queue nor another wait for the same reason is news. The last changes are kept for operators.
    """

    def __init__(self, group: str, log: logging.Logger, clock: Clock) -> None:
        self._group = group
        self._log = log
        self._clock = clock
        self._held: dict[MessageQueue, HeldSince] = {}
        self._moves: deque[ReportedMove] = deque(maxlen=_MOST_MOVES)
        self._last: dict[MessageQueue, QueueDecision] = {}
        self._shares: dict[str, str] = {}
        self._failures: dict[str, str] = {}

    def note(self, decision: QueueDecision) -> None:
        """Record that a queue was taken, dropped, kept, or has to wait."""
        is_repeated = self._last.get(decision.queue) == decision
        self._last[decision.queue] = decision
        match decision.action:
            case Action.TAKE:
                self._take(decision)
            case Action.DROP:
                self._held.pop(decision.queue, None)
                self._moved(decision)
            case Action.WAIT if not is_repeated:
                self._moved(decision)

    def _take(self, decision: QueueDecision) -> None:
        queue = decision.queue
        share = self._shares.get(queue.topic, "")
        self._held[queue] = HeldSince(
            queue=queue, since=self._clock(), why=decision.reason, share=share
        )
        self._moved(decision)

    def _moved(self, decision: QueueDecision) -> None:
        move = ReportedMove(
            at=self._clock(),
            action=decision.action,
            topic=decision.queue.topic,
            queue=decision.queue,
            why=decision.reason,
            detail=decision.detail,
        )
        self._moves.append(move)
        self.print(str(decision))

    def note_share(self, topic: str, share: str) -> None:
        """Record the shares of a topic: how many queues and members it has, and how many queues
        this member gets."""
        self._failures.pop(topic, None)
        if self._shares.get(topic) != share:
            self._shares[topic] = share
            self._moves.append(
                ReportedMove(at=self._clock(), action=_SHARE, topic=topic, why=share)
            )
            self.print(f"{topic}: {share}")

    def note_failure(self, topic: str, reason: str) -> None:
        """Record that a round failed for a topic. Printed every time, to show the attempts."""
        self._failures[topic] = reason
        self.print(f"{topic}: nothing changes: {reason}")

    def plan(self, topic: str) -> RebalancePlan:
        """The last decisions about a topic as they were carried out: what is held, what waits for
        what, and why queues were given up."""
        return RebalancePlan(
            tuple(one for queue, one in sorted(self._last.items()) if queue.topic == topic),
            share=self._shares.get(topic, ""),
            failure=self._failures.get(topic, ""),
        )

    def report(self, strategy: str) -> RebalanceReport:
        """The report for operators: since when each queue is held and why, and the last changes."""
        return RebalanceReport(
            strategy=strategy,
            held=tuple(each for _, each in sorted(self._held.items())),
            moves=tuple(self._moves),
            failures=dict(self._failures),
        )

    def print(self, text: str) -> None:
        """Log one line, prefixed with the group."""
        self._log.debug("%s: %s", self._group, text)
