"""Small bodies that are nothing but a table or a list."""

from msgspec import field

from sparrowmq.protocol.body import Body


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
