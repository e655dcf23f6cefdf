"""Traffic limits as attributes: quotas per second, and the largest backlog allowed.

A limit is stored as attributes of what it limits, so that it reaches slaves with the tables and
survives restarts, and Apache's tools show it. Producer groups and client ids are in no table: their
quotas are attributes of the topic named after the broker, which every broker has.

    topic or consumer group   sparrowmq.quota.messages                      1000
                              sparrowmq.quota.bytes                         10485760
    topic                     sparrowmq.backlog                             100000:refuse:billing
                                                                            60s:slow:billing:audit
    the broker's own topic    sparrowmq.quota.client.messages               50
                              sparrowmq.quota.producer.messages.orders-svc  200

A backlog limit is one attribute, so that it is never half in force. Colons separate its groups,
because commas separate attribute changes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sparrowmq.protocol.names import group_fault

QUOTA = "sparrowmq.quota."
PRODUCER_QUOTA = "sparrowmq.quota.producer."
CLIENT_QUOTA = "sparrowmq.quota.client."
BACKLOG = "sparrowmq.backlog"
MESSAGES, BYTES = "messages", "bytes"
UNITS = (MESSAGES, BYTES)
MOST_PER_SECOND = 10**12
MOST_BACKLOG = 10**15
MOST_BACKLOG_S = 10 * 365 * 86_400
MOST_GROUPS = 16
"""The most groups a backlog limit may name: each is checked every second."""

_LIMIT = re.compile(r"([1-9][0-9]{0,15})(s?)")
_NUMBER = re.compile(r"[1-9][0-9]{0,12}")


class Scope(Enum):
    """What a quota limits."""

    TOPIC = "topic"
    PRODUCER_GROUP = "producer-group"
    CONSUMER_GROUP = "consumer-group"
    CLIENT = "client"


class BacklogAction(Enum):
    """What happens to sends while a backlog is too large."""

    REFUSE = "refuse"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Quota:
    """At most this many messages and bytes a second; None for no limit."""

    messages: int | None = None
    bytes: int | None = None

    def __bool__(self) -> bool:
        return self.messages is not None or self.bytes is not None

    def __str__(self) -> str:
        parts = []
        if self.messages is not None:
            parts.append(f"{self.messages:,} messages/s")
        if self.bytes is not None:
            parts.append(f"{self.bytes:,} bytes/s")
        return " and ".join(parts) or "no limit"


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far the named groups may lag behind, in messages or in seconds."""

    most: int
    is_time: bool
    action: BacklogAction
    groups: tuple[str, ...]

    def __str__(self) -> str:
        """The attribute's value."""
        unit = "s" if self.is_time else ""
        return ":".join((f"{self.most}{unit}", self.action.value, *self.groups))

    @property
    def limit_text(self) -> str:
        """The limit as shown to users."""
        return f"{self.most:,} s" if self.is_time else f"{self.most:,} messages"


def read_backlog(text: str) -> Backlog:
    """Parse a limit from its attribute. Raises ValueError, which says what is allowed."""
    limit, _, rest = text.partition(":")
    action, _, groups_text = rest.partition(":")
    found = _LIMIT.fullmatch(limit)
    actions = [each.value for each in BacklogAction]
    if found is None or action not in actions or not groups_text:
        raise ValueError(
            "is not a backlog limit; expected LIMIT:ACTION:GROUP[:GROUP...] with a limit in"
            f" messages or in seconds (100000, 60s), an action ({', '.join(actions)}) and up to"
            f" {MOST_GROUPS} groups, as in 100000:refuse:billing:audit"
        )
    most, is_time = int(found[1]), bool(found[2])
    longest = MOST_BACKLOG_S if is_time else MOST_BACKLOG
    if most > longest:
        raise ValueError(f"has a limit of {most}; it must be 1 to {longest}")
    groups = tuple(groups_text.split(":"))
    fault = next(filter(None, map(group_fault, groups)), None)
    if fault is not None:
        raise ValueError(f"names a group that cannot exist: {fault}")
    if len(groups) > MOST_GROUPS:
        raise ValueError(f"names {len(groups)} groups; it must name 1 to {MOST_GROUPS}")
    repeated = next((name for name in groups if groups.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"names group {repeated} more than once")
    return Backlog(most, is_time, BacklogAction(action), groups)


# ---- reading attributes. Tables may hold values of another version; those count as no limit.


def quota_of(attributes: Mapping[str, str], prefix: str = QUOTA) -> Quota:
    """The quota of a topic or consumer group, or with CLIENT_QUOTA as prefix that of clients."""
    return Quota(*(_number(attributes.get(prefix + unit)) for unit in UNITS))


def producer_quotas(attributes: Mapping[str, str]) -> dict[str, Quota]:
    """The quotas of producer groups, from the attributes of the broker's own topic."""
    found: dict[str, dict[str, int | None]] = {}
    for name, value in attributes.items():
        unit, _, group = name.removeprefix(PRODUCER_QUOTA).partition(".")
        if name.startswith(PRODUCER_QUOTA) and unit in UNITS and group:
            found.setdefault(group, {})[unit] = _number(value)
    return {group: quota for group, units in found.items() if (quota := Quota(**units))}


def backlog_of(attributes: Mapping[str, str]) -> Backlog | None:
    """A topic's backlog limit."""
    text = attributes.get(BACKLOG)
    if text is None:
        return None
    try:
        return read_backlog(text)
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    return int(text)


# ---- the attributes of each scope


def quota_attributes(scope: Scope, name: str) -> dict[str, str]:
    """Unit → the attribute that holds it."""
    match scope:
        case Scope.TOPIC | Scope.CONSUMER_GROUP:
            return {unit: QUOTA + unit for unit in UNITS}
        case Scope.CLIENT:
            return {unit: CLIENT_QUOTA + unit for unit in UNITS}
        case Scope.PRODUCER_GROUP:
            return {unit: f"{PRODUCER_QUOTA}{unit}.{name}" for unit in UNITS}
