"""Reports of SparrowMQ's brokers about their limits, the use of these, and what they
de-duplicate."""

from typing import ClassVar

from msgspec import field

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class ListLimits(RequestHeader, frozen=True, kw_only=True):
    """Ask a broker for its limits; the body of the answer is a LimitReport."""

    CODE: ClassVar[RequestCode] = RequestCode.LIST_LIMITS


class ReportedLimit(Body, frozen=True, kw_only=True):
    """One quota or backlog limit."""

    scope: str
    name: str
    """Empty for the quota that applies to each client."""
    messages: int | None = None
    """A second."""
    bytes: int | None = None
    """A second."""
    backlog: str | None = None
    """The attribute's value; None for a quota."""
    used_messages: float = 0.0
    """Per second, recently; for clients, the busiest one's."""
    used_bytes: float = 0.0
    refused_last_minute: int = 0
    """Messages. For consumer groups, delayed pulls; where sends are slowed, delayed answers."""
    refused: int = 0
    """The same since the broker's start."""
    dropped: int = 0
    """How many of them were sent one-way."""
    lasting_ms: int | None = None
    """How long it has been refusing; None while it is not."""
    lags: dict[str, int] = field(default_factory=dict)
    """How far the groups of a backlog are behind, in messages or seconds."""
    uncounted: dict[str, str] = field(default_factory=dict)
    """Groups of a backlog limit that do not count, and why."""


class ReportedWindow(Body, frozen=True, kw_only=True):
    """A topic that is de-duplicated."""

    topic: str
    time_ms: int
    """How long a message is remembered according to the attribute."""
    most: int
    """The largest number of messages remembered."""
    known: int | None = None
    """How many are remembered now; None if nothing was sent to the topic since the start."""
    span_ms: int = 0
    """How long ago the oldest of them arrived."""
    duplicates: int = 0
    """Duplicates since the start, which were not stored again."""
    cut: int = 0
    """Messages forgotten early because there were too many."""


class LimitReport(Body, frozen=True, kw_only=True):
    """All limits and de-duplicated topics of a broker."""

    limits: tuple[ReportedLimit, ...] = ()
    windows: tuple[ReportedWindow, ...] = ()
