"""A member's report about its rebalance, as one property of its running information (307).

Java's members report their properties as texts, which Apache's tools print unchanged. So this is
one more text, JSON under a name of ours: tools that do not know it just print it.
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
    """When it was taken, in milliseconds by the member's clock."""
    why: str
    share: str = ""
    """What the member knew at that time: the number of queues and members."""


class ReportedMove(Body, frozen=True, kw_only=True):
    """A change: of a queue, or of a topic's number of queues and members."""

    at: int
    action: str
    """take, drop, wait; share if queues or members came or went."""
    topic: str
    queue: MessageQueue | None = None
    why: str
    detail: str = ""


class RebalanceReport(Body, frozen=True, kw_only=True):
    """A group's rebalance from one member's view."""

    strategy: str = ""
    held: tuple[HeldSince, ...] = ()
    moves: tuple[ReportedMove, ...] = ()
    """The latest moves, oldest first."""
    failures: dict[str, str] = field(default_factory=dict)
    """Topics for which the last round changed nothing, and why."""


def read_report(properties: dict[str, str]) -> RebalanceReport | None:
    """The report in a member's properties; None if there is no readable one."""
    text = properties.get(REBALANCE_PROPERTY)
    if text is None:
        return None
    try:
        return RebalanceReport.from_json(text.encode())
    except BodyError:
        return None
