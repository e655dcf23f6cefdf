"""What the doctor knows before it decides: plain values, gathered over the wire.

A fact that could not be obtained is None, and `missing` says for which checks and why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sparrowmq.admin.doctor.findings import NotMade
from sparrowmq.admin.groups import GroupSettings
from sparrowmq.admin.lag import QueueLag
from sparrowmq.admin.limits import Limit
from sparrowmq.admin.members import GroupMember, Subscription
from sparrowmq.admin.slaves import SlaveInfo
from sparrowmq.admin.topics import TopicQueue, TopicSettings
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.protocol.connections import ConsumerRunningInfo
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.properties import TAGS
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.protocol.sql92.errors import Sql92Error
from sparrowmq.protocol.sql92.filter import Sql92, compile_sql92
from sparrowmq.protocol.subscription import TAG
from sparrowmq.protocol.tags import parse_tags

BrokerKey = tuple[str, int]
"""Name and id of a broker."""


# ---- cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerFacts:
    """One name server."""

    address: str
    brokers: Mapping[BrokerKey, str] | None = None
    """Addresses of all brokers that it knows; None if it does not answer."""
    read_only: frozenset[str] = frozenset()
    """Names of the brokers that it hides from producers."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One registered broker."""

    name: str
    broker_id: int
    address: str
    clusters: tuple[str, ...] = ()
    runtime: Mapping[str, str] | None = None
    """Its report, by Apache's names; None if it does not answer."""
    settings: Mapping[str, str] | None = None
    skew_s: float | None = None
    """How far its clock is ahead of ours; None if that cannot be determined."""
    skew_doubt_s: float = 0.0
    """The uncertainty of `skew_s`."""
    takes_sends: bool = True
    """Whether the broker itself would take sends, regardless of the name servers."""
    error: str = ""
    is_refusal: bool = False
    """Whether `error` is an answer of the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Name servers and brokers."""

    name_servers: tuple[NameServerFacts, ...] = ()
    brokers: tuple[BrokerFacts, ...] = ()
    slaves: tuple[SlaveInfo, ...] = ()
    missing: tuple[NotMade, ...] = ()


# ---- topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingGroup:
    """A group that reads a topic, or has."""

    group: str
    members: int
    """Live ones that subscribe to it, or do not say."""
    lacking: tuple[str, ...] = ()
    """Client ids of the others."""
    delays_s: Mapping[MessageQueue, float] = field(default_factory=dict)
    """The age of the next message that it reads, in each queue where one waits."""
    held: Mapping[str, frozenset[MessageQueue]] = field(default_factory=dict)
    """Queues of the topic that each of its members holds, by client id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic."""

    name: str
    route: TopicRoute | None = None
    no_route: str = ""
    """Why there is none."""
    is_lost: bool = False
    """Whether it was on brokers that are gone."""
    settings: tuple[TopicSettings, ...] = ()
    queues: tuple[TopicQueue, ...] = ()
    readers: tuple[ReadingGroup, ...] | None = None
    """None if no broker reports them."""
    broker_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    masters: tuple[str, ...] = ()
    """Names of all brokers of the cluster."""
    limits: tuple[Limit, ...] = ()
    """Quotas and the largest backlog of this topic."""
    dedup_cuts: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """By broker: messages that were forgotten too soon, the time in ms that is remembered now, and
    the one that was asked for."""
    missing: tuple[NotMade, ...] = ()
    errors: tuple[BrokerFailure, ...] = ()


# ---- group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A snapshot of a group."""

    at_ms: int
    queues: tuple[QueueLag, ...] = ()
    members: Mapping[str, ConsumerRunningInfo | None] = field(default_factory=dict)
    """What each live member reports, by client id; None if it does not answer."""
    retry_end: int | None = None
    """How many messages ever went to retry; None if that is not known."""
    dead_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One consumer group, looked at twice."""

    name: str
    first: GroupLook
    second: GroupLook
    settings: tuple[GroupSettings, ...] = ()
    members: tuple[GroupMember, ...] = ()
    model: MessageModel | None = None
    subscriptions: frozenset[Subscription] = frozenset()
    unequal: Mapping[str, frozenset[Subscription]] = field(default_factory=dict)
    """What each member subscribes to, if they differ."""
    doubled: frozenset[str] = frozenset()
    readable: Mapping[str, frozenset[MessageQueue]] = field(default_factory=dict)
    """The queues that each subscribed topic has for reading."""
    locks: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Client ids that hold locks, if brokers report them."""
    samples: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    """Properties of the newest messages of each topic that the group filters."""
    next_stored_ms: Mapping[MessageQueue, int] = field(default_factory=dict)
    """When the next message of a queue was stored, for queues that did not move."""
    dead_last_ms: int = 0
    """When the newest dead letter was stored; 0 if there is none."""
    stacks: Mapping[str, str] = field(default_factory=dict)
    """Stacks of members whose handlers do not return, by client id."""
    missing: tuple[NotMade, ...] = ()
    errors: tuple[BrokerFailure, ...] = ()

    @property
    def window_s(self) -> float:
        """The time between the two looks."""
        return (self.second.at_ms - self.first.at_ms) / 1000

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member reads everything."""
        return self.model is MessageModel.BROADCASTING


# ---- message


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReader:
    """How far one group is with a message."""

    group: str
    offset: int | None
    """The offset that the group reads next in this queue; None if it has no progress."""
    subscription: Subscription | None = None
    """What it subscribes to in the topic; None while it is offline."""
    retry: MessageExt | None = None
    """The newest copy of the message that waits for, or is in, the group's retry topic."""
    retry_due_ms: int | None = None
    """When that copy is due; None if it has already arrived."""
    retry_is_done: bool = False
    """Whether the group is past that copy."""
    dead: MessageExt | None = None
    resent: MessageExt | None = None
    """The first copy that was stored after the dead letter, so that it was sent again."""
    copies: tuple[MessageExt, ...] = ()
    """All copies for this group in the order in which they were stored: delayed ones, those in its
    retry topic, dead letters, and those that a resend stored in the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFacts:
    """One message."""

    id: str
    topic: str
    now_ms: int
    asked: int = 0
    """How many brokers answered."""
    stored: MessageExt | None = None
    """In its own topic."""
    waiting: MessageExt | None = None
    """In a queue of the broker's own, until it may be delivered."""
    due_ms: int | None = None
    """When that is; None for a half message."""
    half: MessageExt | None = None
    half_ended: bool | None = None
    """Whether its transaction has ended; None if that could not be found out."""
    is_set_aside: bool = False
    """Whether the broker gave up asking its producers."""
    expired: str = ""
    """Why we know that the message once existed."""
    readers: tuple[MessageReader, ...] = ()
    missing: tuple[NotMade, ...] = ()
    errors: tuple[BrokerFailure, ...] = ()


# ---- filters


def passes(wanted: Subscription, properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties matches, as a broker decides it. A filter that cannot
    be parsed passes everything: then the doctor has nothing to say about it."""
    if wanted.kind == TAG:
        tags = _tags(wanted.expression)
        return not tags or properties.get(TAGS) in tags
    condition = _condition(wanted.expression)
    return condition is None or condition.matches(properties)


@lru_cache(maxsize=64)
def _tags(expression: str) -> tuple[str, ...]:
    try:
        return parse_tags(expression)
    except ValueError:
        return ()


@lru_cache(maxsize=64)
def _condition(expression: str) -> Sql92 | None:
    try:
        return compile_sql92(expression)
    except Sql92Error:
        return None
