"""What a member reports about its rebalance, as one property of its running information (307).

Java's members report their properties as texts, which Apache's tools print as they are. So this is
one more text, JSON under a name of ours: tools that do not know it show it, and go on.
"""

from msgspec import field

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message import MessageQueue

REBALANCE_PROPERTY = "sparrowmqRebalance"


class HeldSince(Body, frozen=True, kw_only=True):
    """A queue that the member holds."""

    queue: MessageQueue
    since: int
    """When it was taken, in milliseconds of the member's clock."""
    why: str
    share: str = ""
    """What the member knew then: how many queues and members there were."""


class ReportedMove(Body, frozen=True, kw_only=True):
    """Something that changed: a queue, or how many queues and members a topic has."""

    at: int
    action: str
    """take, drop, wait; share where queues or members came or went."""
    topic: str
    queue: MessageQueue | None = None
    why: str
    detail: str = ""


class RebalanceReport(Body, frozen=True, kw_only=True):
    """The member's side of its group's rebalance."""

    strategy: str = ""
    held: tuple[HeldSince, ...] = ()
    moves: tuple[ReportedMove, ...] = ()
    """The last ones, the oldest first."""
    failures: dict[str, str] = field(default_factory=dict)
    """Topics for which the last round changed nothing, and why."""


def read_report(properties: dict[str, str]) -> RebalanceReport | None:
    """The report among a member's properties; None where there is none that can be read."""
    text = properties.get(REBALANCE_PROPERTY)
    if text is None:
        return None
    try:
        return RebalanceReport.from_json(text.encode())
    except BodyError:
        return None
