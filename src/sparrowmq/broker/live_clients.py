"""Live clients: the members of consumer groups and what they subscribe to, producers, and sessions.

All of this comes from heartbeats and ends with the connection they came on.

Sessions are for members of our own client that want their death to be detected within seconds. They
send keep-alives, heartbeats without a body, four times a session timeout:

    opened by a heartbeat that asks ─▶ first one ─▶ watched ─┬─ 8 scans without any frame: silent
                                                             └─ its connection ends: forgotten

A member that names an ended session learns that its queues may belong to others by now.
"""

import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from sparrowmq.clock import Clock
from sparrowmq.net.connection import Connection
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.subscription import SubscriptionData


class LiveMember:
    """One client of a group, on one connection."""

    __slots__ = (
        "client_id",
        "connection",
        "fingerprint",
        "language",
        "last_seen_ms",
        "subscribed",
        "takes_locks",
        "version",
    )

    def __init__(
        self, client_id: str, connection: Connection, language: str, version: int, now_ms: int
    ) -> None:
        self.client_id = client_id
        self.connection = connection
        self.language = language
        self.version = version
        self.last_seen_ms = now_ms
        self.fingerprint = 0
        """The fingerprint of its last version 2 heartbeat; 0 for version 1."""
        self.subscribed: frozenset[str] | None = None
        """Its subscriptions as text; None until it has sent them on this connection."""
        self.takes_locks = False
        """Whether it locks a queue before consuming it, and thus waits for the owner by itself."""


class ConsumerGroup:
    """The live side of a group: members by connection, subscriptions by topic."""

    __slots__ = (
        "consume_type",
        "faults",
        "from_where",
        "is_checked",
        "members",
        "message_model",
        "name",
        "subscriptions",
    )

    def __init__(self, name: str, data: ConsumerData) -> None:
        self.name = name
        self.consume_type: ConsumeType = data.consume_type
        self.message_model: MessageModel = data.message_model
        self.from_where: ConsumeFromWhere = data.consume_from_where
        self.members: dict[Connection, LiveMember] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.faults = ""
        """The last reported faults of the group."""
        self.is_checked = False
        """Whether nothing that could cause a fault has changed since then."""

    @property
    def client_ids(self) -> list[str]:
        """The client ids, each once, in order of arrival."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def topics(self) -> frozenset[str]:
        """Topics to which any member subscribes, whichever heartbeat came last. Those of the last
        heartbeat count for members that have not said it on their connection."""
        told = [member.subscribed for member in self.members.values()]
        kept = self.subscriptions
        if told and None not in told:  # not what only members that are gone subscribed to
            kept = {topic: data for topic, data in kept.items() if is_retry_topic(topic)}
        return frozenset(kept) | {
            text.partition(" ")[0] for subscribed in told for text in subscribed or ()
        }

    def without(self, topic: str) -> int:
        """How many members are known not to subscribe to a topic, although others do."""
        if is_retry_topic(topic):
            return 0
        told = [each.subscribed for each in self.members.values() if each.subscribed is not None]
        lacking = sum(all(one.partition(" ")[0] != topic for one in each) for each in told)
        return lacking if lacking < len(self.members) else 0

    def find(self, client_id: str) -> LiveMember | None:
        """The member with a client id, on its newest connection."""
        for member in reversed(self.members.values()):
            if member.client_id == client_id:
                return member
        return None

    def join(self, member: LiveMember, data: ConsumerData) -> bool:
        """Process a heartbeat; returns whether membership changed."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.from_where = data.consume_from_where
        known = self.members.get(member.connection)
        if known is not None:
            member.takes_locks = known.takes_locks
            if member.subscribed is None:
                member.subscribed = known.subscribed
        self.members[member.connection] = member
        is_new = known is None or known.client_id != member.client_id
        if is_new or (known is not None and known.subscribed != member.subscribed):
            self.is_checked = False
        return is_new

    def subscribe(self, subscribed: Iterable[SubscriptionData]) -> bool:
        """Make these the group's subscriptions; returns whether a topic was added or removed.

        The newest version of a subscription wins, as a late heartbeat must not bring back an old
        filter.
        """
        changed = False
        topics = set()
        for data in subscribed:
            topics.add(data.topic)
            known = self.subscriptions.get(data.topic)
            if known is None:
                changed = True
            elif data.sub_version <= known.sub_version:
                continue
            self.subscriptions[data.topic] = data
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        return changed


class Consumers:
    """All live consumer groups of this broker."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._last: dict[str, ConsumerGroup] = {}
        self._last_until_ms = 0
        self._groups_of: dict[Connection, set[str]] = {}

    def group(self, name: str) -> ConsumerGroup | None:
        """The live group; None if it has no member."""
        return self._groups.get(name)

    def remember_subscriptions(self, groups: dict[str, ConsumerGroup], until_ms: int) -> None:
        """Keep groups that were live when the broker stopped; members may come back until
        `until_ms` (monotonic)."""
        self._last = groups
        self._last_until_ms = until_ms

    def live_or_last(self, name: str, monotonic: Clock) -> ConsumerGroup | None:
        """The live group, or its last state if the broker stopped a moment ago."""
        live = self._groups.get(name)
        if live is None and self._last and monotonic() < self._last_until_ms:
            live = self._last.get(name)
        return live

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(tuple(self._groups.values()))

    def join(
        self, member: LiveMember, data: ConsumerData, *, with_subscriptions: bool = True
    ) -> bool:
        """Register a member by its heartbeat; returns whether the group should rebalance."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name, data)
        self._groups_of.setdefault(member.connection, set()).add(data.group_name)
        if with_subscriptions:
            member.subscribed = _subscribed_texts(data)
        joined = group.join(member, data)
        return (with_subscriptions and group.subscribe(data.subscription_data_set)) or joined

    def replace_older(self, member: LiveMember, group_name: str) -> None:
        """Remove members of a client on its older connections, since it came back on a new one.

        Only for ids that a process generates (`ip@pid#time`): other ids may be two clients.
        """
        group = self._groups.get(group_name)
        if group is None or "#" not in member.client_id:
            return
        for connection, other in tuple(group.members.items()):
            if other.client_id == member.client_id and connection is not member.connection:
                self.leave(connection, group_name)

    def leave(
        self, connection: Connection, group_name: str
    ) -> tuple[ConsumerGroup, LiveMember] | None:
        """Remove a member; returns the group and the member if there was one."""
        group = self._groups.get(group_name)
        member = group.members.pop(connection, None) if group is not None else None
        if group is None or member is None:
            return None
        group.is_checked = False
        if not group.members:
            del self._groups[group_name]
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(group_name)
            if not groups:
                del self._groups_of[connection]
        return group, member

    def has_member_on(self, connection: Connection) -> bool:
        """Whether this connection has a member."""
        return connection in self._groups_of

    def forget(self, connection: Connection, most: int) -> list[tuple[ConsumerGroup, LiveMember]]:
        """A connection ended: returns groups that lost a member by this, each with that member.

        Of a connection with more members than `most`, the others follow with the next call.
        """
        names = tuple(islice(self._groups_of.get(connection, ()), most))
        left = (self.leave(connection, name) for name in names)
        return [gone for gone in left if gone is not None]

    def silent_since(self, before_ms: int) -> list[LiveMember]:
        """Members whose last heartbeat came before that time."""
        return [
            member
            for group in self._groups.values()
            for member in group.members.values()
            if member.last_seen_ms < before_ms
        ]

    def subscribers(self, topic: str) -> list[str]:
        """Names of live groups with a member that subscribes to a topic."""
        return [name for name, group in self._groups.items() if topic in group.topics]


def _subscribed_texts(data: ConsumerData) -> frozenset[str]:
    """Subscriptions as text, without the retry topic, which clients add by themselves."""
    return frozenset(
        f"{one.topic} {one.expression_type or 'TAG'} {one.sub_string}"
        for one in data.subscription_data_set
        if not is_retry_topic(one.topic)
    )


class GroupFaults(msgspec.Struct, frozen=True):
    """What is wrong inside a group: members that subscribe differently, a client id used twice.

    Both are reported but never refused: a rolling change of a subscription looks the same for a
    while. Empty if there are no faults.
    """

    unequal: dict[str, list[str]]
    """Client id to subscriptions of every member, if they do not agree."""
    doubled: list[str]
    """Client ids with several connections: such members take the same queues."""

    def __bool__(self) -> bool:
        return bool(self.unequal or self.doubled)

    def __str__(self) -> str:
        parts = []
        if self.unequal:
            subscribed = "; ".join(
                f"{who}: {', '.join(what)}" for who, what in self.unequal.items()
            )
            remedy = "give all members of a group the same subscriptions"
            parts.append(f"members subscribe differently ({subscribed}): {remedy}")
        if self.doubled:
            remedy = "give each process an instance name of its own"
            parts.append(f"client ids are used twice ({', '.join(self.doubled)}): {remedy}")
        return " and ".join(parts)


def group_faults(group: ConsumerGroup) -> GroupFaults:
    """The current faults of the group."""
    known = [member for member in group.members.values() if member.subscribed is not None]
    unequal = {}
    if len({member.subscribed for member in known}) > 1:
        unequal = {member.client_id: sorted(member.subscribed or ()) for member in known}
    doubled = []
    if not group.is_broadcasting:
        uses = Counter(member.client_id for member in group.members.values())
        doubled = sorted(client_id for client_id, count in uses.items() if count > 1)
    return GroupFaults(unequal, doubled)


class Producers:
    """Live producers by group: those that can be asked about their group's transactions."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, LiveMember]] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self.client_ids: dict[Connection, str] = {}
        """Of connections whose client a heartbeat has named."""
        self._by_client_id: dict[str, LiveMember] = {}

    def join(self, group: str, member: LiveMember, most_groups: int = sys.maxsize) -> bool:
        """Register a producer by its heartbeat; False if its group would be one too many."""
        if group not in self._groups and len(self._groups) >= most_groups:
            return False
        self._groups.setdefault(group, {})[member.connection] = member
        self._groups_of.setdefault(member.connection, set()).add(group)
        self.client_ids[member.connection] = member.client_id
        self._by_client_id[member.client_id] = member
        return True

    def leave(self, connection: Connection, group: str) -> None:
        """A producer unregistered."""
        members = self._groups.get(group)
        gone = None
        if members is not None:
            gone = members.pop(connection, None)
            if not members:
                del self._groups[group]
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[connection], self.client_ids[connection]
                self._forget_client(gone)

    def _forget_client(self, member: LiveMember | None) -> None:
        if member is not None:
            current = self._by_client_id.get(member.client_id)
            if current is not None and current.connection is member.connection:
                del self._by_client_id[member.client_id]

    def client_id(self, connection: Connection) -> str:
        """The client on a connection; the peer's address until a heartbeat has named the client."""
        return self.client_ids.get(connection) or connection.peer

    def find(self, client_id: str) -> LiveMember | None:
        """The live producer with a client id, on its newest connection."""
        return self._by_client_id.get(client_id)

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        for group in tuple(self._groups_of.get(connection, ())):
            self.leave(connection, group)

    def members(self, group: str) -> list[LiveMember]:
        """The live producers of a group, in order of arrival."""
        return list(self._groups.get(group, {}).values())

    def has_any(self, *, but: str) -> bool:
        """Whether any group other than `but` has a live producer."""
        return any(group != but for group in self._groups)

    def groups(self) -> Iterator[tuple[str, list[LiveMember]]]:
        """Every live group with its members, as they are at its turn; the loop may run between."""
        for group in list(self._groups):
            if members := self.members(group):
                yield group, members

    def silent_since(self, before_ms: int) -> list[LiveMember]:
        """Members whose last heartbeat came before that time."""
        return [
            member
            for members in self._groups.values()
            for member in members.values()
            if member.last_seen_ms < before_ms
        ]


SCANS = 8
"""Scans without a frame after which a member is silent.

Scans are counted instead of time: a broker that was itself held up has scanned only once, and does
not blame members whose keep-alives wait unread in the socket.
"""


class _Session:
    __slots__ = ("connection", "frames_read", "is_watched", "name", "scans")

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.frames_read = connection.frames_read
        self.scans = 0
        self.is_watched = False
        """Set by its first keep-alive: Java and Go members send none, and stay."""


class MemberSessions:
    """The open sessions, at most one for each connection."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Session] = {}
        self._by_connection: dict[Connection, _Session] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def open(self, connection: Connection, rng: random.Random) -> str:
        """The name of the connection's session; opens one if it had none."""
        session = self._by_connection.get(connection)
        if session is None:
            session = _Session(f"{rng.getrandbits(64):016x}", connection)
            self._by_connection[connection] = self._by_name[session.name] = session
        return session.name

    def keep_alive(self, name: str) -> bool:
        """Record a keep-alive; False if the session no longer exists."""
        session = self._by_name.get(name)
        if session is None:
            return False
        session.is_watched = True
        session.scans = 0
        return True

    def forget(self, connection: Connection) -> None:
        """The connection ended, or no longer has a consumer."""
        session = self._by_connection.pop(connection, None)
        if session is not None:
            del self._by_name[session.name]

    def scan(self) -> list[Connection]:
        """Scan once; returns the connections of members that were silent for too many scans."""
        silent = []
        for session in self._by_name.values():
            frames_read = session.connection.frames_read
            if frames_read != session.frames_read or not session.is_watched:
                session.frames_read = frames_read
                session.scans = 0
                continue
            session.scans += 1
            if session.scans >= SCANS:
                silent.append(session.connection)
        return silent
