"""Live brokers, and the groups of master and slaves that share a broker name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sparrowmq.nameserver.route_encoding import encode_broker
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.route import MASTER_ID, BrokerData, TopicQueueMappingInfo
from sparrowmq.protocol.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says about itself."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    timeout_ms: int
    acting_master: bool | None = None
    """None: a broker before 5.0, which knows nothing of it."""
    zone_name: str | None = None
    topics: Collection[TopicConfig] = ()
    data_version: DataVersion = field(default_factory=DataVersion)
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class LiveBroker:
    """One broker process. It lives while its session (a connection) does and it keeps talking."""

    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    timeout_ms: int
    data_version: DataVersion
    filter_servers: tuple[str, ...]
    session: object
    last_seen_ms: int

    def is_silent(self, now_ms: int) -> bool:
        """Whether it has been quiet for longer than it may."""
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
        """As routes show it; with `stand_in` the smallest id takes a missing master's place."""
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
        """Members or settings are others now."""
        self._encoded.clear()
