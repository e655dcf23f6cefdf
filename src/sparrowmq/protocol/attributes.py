"""Attributes of topics and groups: which exist, and how operators change them.

A change is `+name=value` or `-name`. Headers separate changes by commas; in bodies they are the
members of an object, `{"+name": "value", "-other": ""}`. The rules are those of Apache's
AttributeUtil:

* only known attributes can be set, to values that they allow;
* a new topic or group can only be given attributes; removing one that is not set is an error;
* some can be set at creation only.

Names that begin with `sparrowmq.` are ours. A feature that needs one adds it to a table below;
Apache's broker keeps such an attribute when it finds it in a file, and ignores it.

Tables are checked where operators change them, not where they are loaded or copied: what an older
version or another broker has stored stays as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sparrowmq.protocol import limits
from sparrowmq.protocol.dedup import DEDUP_ATTRIBUTE, dedup_fault
from sparrowmq.protocol.names import group_fault

OWN_PREFIX = "sparrowmq."
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class OneOf:
    """A choice."""

    values: tuple[str, ...]
    unserved: tuple[str, ...] = ()
    """Values that Apache's broker knows and this one cannot honour."""
    is_changeable: bool = True

    def fault(self, value: str) -> str | None:
        """Why the value is refused."""
        if value in self.values:
            return None
        reason = "is not served by this broker" if value in self.unserved else "is unknown"
        return f"{_shown(value)} {reason}, allowed: {', '.join(self.values)}"


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number."""

    least: int
    most: int
    is_changeable: bool = True

    def fault(self, value: str) -> str | None:
        """Why the value is refused."""
        digits = value.removeprefix("-")
        if digits.isdecimal() and digits.isascii() and self.least <= int(value) <= self.most:
            return None
        return f"{_shown(value)} is not a number from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Form:
    """A value with a special format."""

    why_not: Callable[[str], str | None]
    """Returns what is allowed if the value is not, else None."""
    is_changeable: bool = True

    def fault(self, value: str) -> str | None:
        """Why the value is refused."""
        reason = self.why_not(value)
        return None if reason is None else f"{_shown(value)} is refused, {reason}"


@dataclass(frozen=True, slots=True)
class Unserved:
    """Known to Apache's broker, but without a meaning here."""

    is_changeable: bool = True

    def fault(self, value: str) -> str:
        """Why any value is refused."""
        return "is not served by this broker"


@dataclass(frozen=True, slots=True)
class LargestBacklog:
    """A limit, an action and groups: `limits.read_backlog`."""

    is_changeable: bool = True

    def fault(self, value: str) -> str | None:
        """Why the value is refused."""
        try:
            limits.read_backlog(value)
        except ValueError as error:
            return f"{_shown(value)} {error}"
        return None


Attribute: TypeAlias = OneOf | Number | Form | Unserved | LargestBacklog

_PER_SECOND = Number(1, limits.MOST_PER_SECOND)
_QUOTAS: Mapping[str, Attribute] = {limits.QUOTA + unit: _PER_SECOND for unit in limits.UNITS}

# As in Apache's TopicAttributes of release 5.5.0.
TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    # A batch queue has units of a different size: Apache's broker would refuse the store.
    "queue.type": OneOf(("SimpleCQ",), unserved=("BatchCQ", "RocksDBCQ"), is_changeable=False),
    "cleanup.policy": OneOf(("DELETE",), unserved=("COMPACTION",), is_changeable=False),
    "message.type": OneOf(
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
        unserved=("PRIORITY", "LITE"),
    ),
    "reserve.time": Number(-1, 2**63 - 1),
    "lite.topic.expiration": Unserved(),
    DEDUP_ATTRIBUTE: Form(dedup_fault),
    **_QUOTAS,
    limits.BACKLOG: LargestBacklog(),
}
# As in its SubscriptionGroupAttributes: they concern POP and lite topics only.
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Unserved(),
    "lite.bind.topic": Unserved(),
    "lite.sub.model": Unserved(),
    "lite.sub.reset.offset.exclusive": Unserved(),
    "lite.sub.reset.offset.unsubscribe": Unserved(),
    "lite.sub.client.quota": Unserved(),
    "lite.sub.client.max.event.cnt": Unserved(),
    "lite.sub.wildcard": Unserved(),
    **_QUOTAS,
}


def broker_attributes(changes: Mapping[str, str]) -> Mapping[str, Attribute]:
    """The attributes allowed on the topic with the broker's name, among those in `changes`.

    The names of producer groups' quotas end with the group's name.
    """
    known: dict[str, Attribute] = {limits.CLIENT_QUOTA + unit: _PER_SECOND for unit in limits.UNITS}
    for signed in changes:
        for unit in limits.UNITS:
            prefix = f"{limits.PRODUCER_QUOTA}{unit}."
            group = signed[1:].removeprefix(prefix)
            if signed[1:].startswith(prefix) and group_fault(group) is None:
                known[signed[1:]] = _PER_SECOND
    return known


class AttributeRefused(ValueError):
    """A change that is not allowed; the text says what would be."""


def parse_changes(text: str) -> dict[str, str]:
    """The changes in a header by signed name. Raises AttributeRefused."""
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if bool(equals) != name.startswith("+"):
            raise AttributeRefused(f"attribute change {_shown(part)}, allowed: +name=value, -name")
        if name in changes:
            raise AttributeRefused(f"attribute {_shown(name[1:])}: is changed twice")
        changes[name] = value
    return changes


def changed_attributes(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> dict[str, str]:
    """Attributes after changes by signed name; `current` is None for something being created.

    Raises AttributeRefused.
    """
    result = dict(current or {})
    seen = set()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        fault = _fault(known, current, sign, name, value)
        if name in seen:
            fault = "is changed twice"
        if fault is not None:
            raise AttributeRefused(f"attribute {_shown(name or signed)}: {fault}")
        seen.add(name)
        if sign == "+":
            result[name] = value
        else:
            del result[name]
    return result


def _fault(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    sign: str,
    name: str,
    value: str,
) -> str | None:
    if sign not in ("+", "-") or not name:
        return "a change begins with + or -: +name=value, -name"
    attribute = known.get(name)
    if sign == "-" and name not in (current or {}):
        return "cannot be removed, it is not set"
    if attribute is None:
        # An attribute that was stored unchecked can still be removed.
        return None if sign == "-" else f"is unknown, allowed: {_served(known)}"
    if current is not None and not attribute.is_changeable:
        return "can only be set when the topic is created"
    return attribute.fault(value) if sign == "+" else None


def _served(known: Mapping[str, Attribute]) -> str:
    names = [name for name, attribute in known.items() if not isinstance(attribute, Unserved)]
    return ", ".join(names) or "none"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
