"""Routes: which brokers serve a topic, and where they are."""

from msgspec import field

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.perm import PERM_READ_WRITE

MASTER_ID = 0
"""The broker id of a master; slaves have 1 and more."""
GLOBAL_SCOPE = "__global__"


class QueueData(Body, frozen=True, kw_only=True):
    """A topic's queues on the brokers of one name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int = PERM_READ_WRITE
    topic_sys_flag: int = 0


class BrokerData(Body, frozen=True, kw_only=True):
    """The brokers that share a name: a master and its slaves."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    """Broker id to `host:port`. Ids are written in quotes: Apache does so for clients from 4.9.4
    on, and older Java clients and the Go client read them as well."""
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_addr(self) -> str | None:
        """Address of the master, None while there is none."""
        return self.broker_addrs.get(MASTER_ID)


class TopicQueueMappingInfo(Body, frozen=True, kw_only=True):
    """Which logic queues of a static topic one broker name holds, and in which queues they are.

    Our brokers have no static topics; the name server serves those that Apache's register.
    """

    topic: str | None = None
    scope: str = GLOBAL_SCOPE
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)
    """Logic queue id to physical queue id."""


class LogicQueueMappingItem(Body, frozen=True, kw_only=True):
    """The location of a section of a logic queue."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class TopicQueueMappingDetail(TopicQueueMappingInfo, frozen=True, kw_only=True):
    """The sections of all logic queues that one broker name holds."""

    hosted_queues: dict[int, tuple[LogicQueueMappingItem, ...]] = field(default_factory=dict)


class TopicRoute(Body, frozen=True, kw_only=True):
    """Body of the answer to request 105 (Apache's TopicRouteData)."""

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    order_topic_conf: str | None = None
    """`broker-a:4;broker-b:4` if the topic has a fixed queue list."""
    filter_server_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body, frozen=True, kw_only=True):
    """Body of the answer to request 106."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    """By broker name."""
    cluster_addr_table: dict[str, frozenset[str]] = field(default_factory=dict)
    """Cluster name to broker names."""


class TopicList(Body, frozen=True, kw_only=True):
    """A set of topic names."""

    topic_list: frozenset[str] = frozenset()
    broker_addr: str | None = None
