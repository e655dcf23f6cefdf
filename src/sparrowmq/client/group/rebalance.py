"""Who consumes which queues: a pure plan, computed alike by every member alone."""

from collections.abc import Set
from dataclasses import dataclass

from sparrowmq.protocol.message import MessageQueue


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What changes: queues to give up and queues to take."""

    drop: frozenset[MessageQueue]
    take: frozenset[MessageQueue]

    @property
    def is_empty(self) -> bool:
        """Whether everything stays as it is."""
        return not self.drop and not self.take


def plan_rebalance(
    held: Set[MessageQueue],
    assigned: Set[MessageQueue],
    anew: Set[MessageQueue] = frozenset(),
) -> RebalancePlan:
    """The difference between what a member has and what it should have.

    A held queue that is among `anew` is given up and taken again.
    """
    drop = (held - assigned) | (held & anew)
    return RebalancePlan(drop=frozenset(drop), take=frozenset(assigned - (held - drop)))
