"""Reports of a broker that is being emptied: its state, and what it still has to finish."""

from enum import StrEnum

from msgspec import field

from sparrowmq.protocol.body import Body

DRAINED_BROKERS = "DRAINED_BROKERS"
"""The namespace of the notes that name servers keep of drained brokers: broker name → address."""


_DRAINS = "drains and takes no new messages"


def drain_refusal(broker_name: str) -> str:
    """What a broker that drains answers to sends, with NO_PERMISSION."""
    return (
        f"broker {broker_name} {_DRAINS}; send to another one, or resume it with: sparrowmq broker"
        f" resume {broker_name}"
    )


def says_it_drains(refusal: str) -> bool:
    """Whether a refusal ends with the drain. Other sends that lack permission lack it for good."""
    return _DRAINS in refusal


class DrainState(StrEnum):
    """How far a broker has been emptied."""

    SERVING = "serving"
    DRAINING = "draining"
    """It accepts no new messages and is registered without write permission."""
    LEFT = "left"
    """It is no longer registered, and has nothing that a group still waits for."""


class DrainTable(Body, frozen=True, kw_only=True):
    """config/drain.json, which keeps the state across restarts."""

    state: DrainState = DrainState.SERVING
    since_ms: int = 0


class GroupLeft(Body, frozen=True, kw_only=True):
    """Messages of a topic that a group has not read yet."""

    group: str
    topic: str
    left: int
    members: int = 0
    """Members of the group that are connected to this broker."""
    is_paused: bool = False
    lacking: int = 0
    """Those of them that do not subscribe to the topic, although others do."""


class DrainReport(Body, frozen=True, kw_only=True):
    """Everything a broker has to finish before nothing depends on it."""

    state: DrainState = DrainState.SERVING
    since_ms: int = 0
    refuses_sends: bool = False
    """False at first, so that producers can learn which other brokers take messages."""
    log_end: int = -1
    """Where the log ended when this report was made; -1 if it grew meanwhile."""
    is_settled: bool = True
    """False for a while after a start: members that are not back yet may have much left."""
    groups: tuple[GroupLeft, ...] = ()
    """Only those with something left."""
    delayed: int = 0
    last_due_ms: int = 0
    """When the last delayed message is due; 0 if unknown, or if none waits."""
    half: int = 0
    dead: dict[str, int] = field(default_factory=dict)
    """Group → dead letters that stay behind."""
    broadcasting: tuple[str, ...] = ()
    """Groups whose progress only their members know."""
    claimed: tuple[str, ...] = ()
    """Topics with messages that at least one group reads; others may read them elsewhere."""
    unclaimed: dict[str, int] = field(default_factory=dict)
    """Topic → messages that no group has ever read."""


class ReadElsewhere(Body, frozen=True, kw_only=True):
    """Groups that read topics on other brokers. This broker may not know them."""

    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic → groups."""
