"""The limits of a broker with their use, and what it de-duplicates, as SparrowMQ's brokers report
them."""

from typing import ClassVar

from msgspec import field

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class ListLimits(RequestHeader, frozen=True, kw_only=True):
    """Ask a broker for its limits; the body of the answer is a LimitReport."""

    CODE: ClassVar[RequestCode] = RequestCode.LIST_LIMITS


class ReportedLimit(Body, frozen=True, kw_only=True):
    """One quota, or one largest backlog."""

    scope: str
    name: str
    """Empty for the quota that all clients have alike."""
    messages: int | None = None
    """A second."""
    bytes: int | None = None
    """A second."""
    backlog: str | None = None
    """As the attribute has it; a quota has none."""
    used_messages: float = 0.0
    """A second, lately; of clients, that of the busiest one."""
    used_bytes: float = 0.0
    refused_last_minute: int = 0
    """Messages. Of consumer groups, pulls that were held; where sends are slowed, held answers."""
    refused: int = 0
    """The same since the start."""
    dropped: int = 0
    """Those of them that were sent one-way."""
    lasting_ms: int | None = None
    """For how long it has been refusing; None while it is not."""
    lags: dict[str, int] = field(default_factory=dict)
    """How far the groups of a backlog are behind, in messages or seconds."""
    uncounted: dict[str, str] = field(default_factory=dict)
    """Groups of a backlog that do not count, and why."""


class ReportedWindow(Body, frozen=True, kw_only=True):
    """A topic that is de-duplicated."""

    topic: str
    time_ms: int
    """How long a message is remembered, as the attribute says."""
    most: int
    """Messages that are remembered at most."""
    known: int | None = None
    """Remembered now; None while nobody has sent to the topic since the start."""
    span_ms: int = 0
    """How long ago the oldest of them came."""
    duplicates: int = 0
    """Messages that were not stored again, since the start."""
    cut: int = 0
    """Messages that were forgotten before their time, because there were too many."""


class LimitReport(Body, frozen=True, kw_only=True):
    """All of them."""

    limits: tuple[ReportedLimit, ...] = ()
    windows: tuple[ReportedWindow, ...] = ()
