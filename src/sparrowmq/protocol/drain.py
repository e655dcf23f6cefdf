"""What a broker that is being emptied says about itself, and what it still has to finish."""

from enum import StrEnum

from msgspec import field

from sparrowmq.protocol.body import Body

DRAINED_BROKERS = "DRAINED_BROKERS"
"""The namespace of the notes that name servers keep of drained brokers: broker name → address."""


class DrainState(StrEnum):
    """How far a broker is on its way out."""

    SERVING = "serving"
    DRAINING = "draining"
    """It takes no new messages and is registered without write permission."""
    LEFT = "left"
    """It is not registered any more, and has nothing that a group still waits for."""


class DrainTable(Body, frozen=True, kw_only=True):
    """config/drain.json: the state outlives restarts."""

    state: DrainState = DrainState.SERVING
    since_ms: int = 0


class GroupLeft(Body, frozen=True, kw_only=True):
    """Messages of a topic that a group has not read yet."""

    group: str
    topic: str
    left: int
    members: int = 0
    """Of the group, connected to this broker."""
    is_paused: bool = False


class DrainReport(Body, frozen=True, kw_only=True):
    """Everything that a broker has to finish before nothing depends on it any more."""

    state: DrainState = DrainState.SERVING
    since_ms: int = 0
    refuses_sends: bool = False
    """False for a moment after the beginning: producers learn first that others take messages."""
    log_end: int = -1
    """Where the log ended when all of this was true; -1 if it grew meanwhile."""
    is_settled: bool = True
    """False for a while after a start: members that have not come back yet may have much left."""
    groups: tuple[GroupLeft, ...] = ()
    """Only those with something left."""
    delayed: int = 0
    last_due_ms: int = 0
    """When the last delayed message is due; 0 where that is not known, or none waits."""
    half: int = 0
    dead: dict[str, int] = field(default_factory=dict)
    """Group → dead letters that stay behind."""
    broadcasting: tuple[str, ...] = ()
    """Groups whose progress only their members know."""
    unclaimed: dict[str, int] = field(default_factory=dict)
    """Topic → messages that no group has ever read."""
