"""Live brokers, and the groups of master and slaves that share a broker name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sparrowmq.nameserver.route_encoding import encode_broker
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.route import MASTER_ID, BrokerData, TopicQueueMappingInfo
from sparrowmq.protocol.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker reports about itself."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    timeout_ms: int
    acting_master: bool | None = None
    """None for a broker before 5.0, which does not know this setting."""
    zone_name: str | None = None
    topics: Collection[TopicConfig] = ()
    data_version: DataVersion = field(default_factory=DataVersion)
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class LiveBroker:
    """One broker process. It is live while its session (a connection) is open and it reports."""

    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    timeout_ms: int
    data_version: DataVersion
    filter_servers: tuple[str, ...]
    session: object
    last_seen_ms: int
    answered_ms: int = 0
    """When it last answered a question of this name server. That says nothing about its topics, so
    a broker that only answers is silent."""

    @property
    def heard_ms(self) -> int:
        """When it last gave any sign of life."""
        return max(self.last_seen_ms, self.answered_ms)

    def is_silent(self, now_ms: int) -> bool:
        """Whether it has been silent for longer than allowed."""
        return now_ms - self.last_seen_ms > self.timeout_ms


class BrokerGroup:
    """All live brokers of one name, by id."""

    __slots__ = ("_encoded", "acting_master", "cluster", "members", "name", "zone_name")

    def __init__(self, name: str, cluster: str) -> None:
        self.name = name
        self.cluster = cluster
        self.acting_master = False
        self.zone_name: str | None = None
        self.members: dict[int, LiveBroker] = {}
        self._encoded: dict[tuple[bool, bool], bytes] = {}

    @property
    def master(self) -> LiveBroker | None:
        """The member with id 0."""
        return self.members.get(MASTER_ID)

    def addresses(self) -> dict[int, str]:
        """Broker id to address, smallest id first."""
        return {number: self.members[number].address for number in sorted(self.members)}

    def data(self, *, stand_in: bool = False) -> BrokerData:
        """The group in routes; with `stand_in` the smallest id replaces a missing master."""
        addresses = self.addresses()
        if stand_in and addresses and MASTER_ID not in addresses:
            address = addresses.pop(min(addresses))
            addresses = {MASTER_ID: address, **addresses}
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs=addresses,
            enable_acting_master=self.acting_master,
            zone_name=self.zone_name,
        )

    def encoded(self, *, quoted: bool, stand_in: bool) -> bytes:
        """`data` as bytes, kept until `changed` is called."""
        answer = self._encoded.get((quoted, stand_in))
        if answer is None:
            answer = encode_broker(self.data(stand_in=stand_in), quoted=quoted)
            self._encoded[quoted, stand_in] = answer
        return answer

    def changed(self) -> None:
        """Note that members or settings have changed."""
        self._encoded.clear()
