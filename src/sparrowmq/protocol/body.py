"""The base of all JSON bodies, and the bodies that are little more than a table."""

from typing import ClassVar, Self

import msgspec
from msgspec import field

from sparrowmq.protocol.lenient_json import SLOW_LIMIT_BYTES, read_json, write_json


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """A value that travels as a JSON body; its Python names become camelCase on the wire."""

    SLOW_LIMIT_BYTES: ClassVar[int] = SLOW_LIMIT_BYTES
    """The limit for JSON of the kind only Java writes; tables keyed by queues allow more."""

    def to_json(self) -> bytes:
        """Compact JSON that Java and Go clients read."""
        return write_json(self)

    @classmethod
    def from_json(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read what Java, Go or we wrote. Unknown fields are ignored; raises BodyError."""
        return read_json(data, cls, cls.SLOW_LIMIT_BYTES)


class KVTable(Body, frozen=True, kw_only=True):
    """Names and values: a namespace of the name server, a broker's runtime information."""

    table: dict[str, str] = field(default_factory=dict)


class GroupList(Body, frozen=True, kw_only=True):
    """Names of groups."""

    group_list: frozenset[str] = frozenset()


class BrokerMemberGroup(Body, frozen=True, kw_only=True):
    """The live brokers of one name."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)


class BrokerMemberGroupAnswer(Body, frozen=True, kw_only=True):
    """Body of the answer to request 901."""

    broker_member_group: BrokerMemberGroup


class DataVersion(Body, frozen=True, kw_only=True):
    """Version of a table that brokers keep and name servers copy: the same if the tables are."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> Self:
        """The version after a change made at `now_ms`."""
        return type(self)(state_version=state_version, timestamp=now_ms, counter=self.counter + 1)
