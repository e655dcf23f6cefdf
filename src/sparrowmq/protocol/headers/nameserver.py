"""Headers for requests of brokers, clients and operators to a name server."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader

NAME_TAKEN = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
"""Refuses a registration because another master has the name and answers. Apache's controller uses
this code for elections; no other answer to a registration has it, and Apache's broker logs the text
of any code other than success."""


class RegisterBroker(RequestHeader, frozen=True, kw_only=True):
    """A broker announces itself and all its topics; the body is RegisterBrokerBody."""

    CODE: ClassVar[RequestCode] = RequestCode.REGISTER_BROKER

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    heartbeat_timeout_millis: int | None = None
    """How long the broker may be silent; None means the name server's own limit."""
    enable_acting_master: bool | None = None
    """Whether the slave with the smallest id stands in for a lost master. None: before 5.0."""
    compressed: bool = False
    body_crc32: int = 0
    """CRC-32 of the body without its top bit, 0 for none."""
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class BrokerRegistered(ResponseHeader, frozen=True, kw_only=True):
    """Where a slave finds its master; both are None for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(RequestHeader, frozen=True, kw_only=True):
    """A broker unregisters because it stops."""

    CODE: ClassVar[RequestCode] = RequestCode.UNREGISTER_BROKER

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str


class BrokerHeartbeat(RequestHeader, frozen=True, kw_only=True):
    """A sign of life between two registrations."""

    CODE: ClassVar[RequestCode] = RequestCode.BROKER_HEARTBEAT

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int | None = None


class QueryDataVersion(RequestHeader, frozen=True, kw_only=True):
    """A broker asks whether it must send its topics again; the body is its DataVersion."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_DATA_VERSION

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str


class DataVersionCompared(ResponseHeader, frozen=True, kw_only=True):
    """The body is the DataVersion that the name server has, if it has any."""

    changed: bool


class GetTopicRoute(RequestHeader, frozen=True, kw_only=True):
    """Ask which brokers serve a topic; the body of the answer is TopicRoute."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None
    """Whether broker ids must be quoted, which old clients do not expect."""
    zone_mode: str | None = msgspec.field(name="__ZONE_MODE", default=None)
    """`true`: only brokers of the client's own zone (Java's `rocketmq.zone.mode`)."""
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class GetClusterInfo(RequestHeader, frozen=True, kw_only=True):
    """All clusters and brokers; the body of the answer is ClusterInfo."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_INFO


class GetBrokerMemberGroup(RequestHeader, frozen=True, kw_only=True):
    """Master and slaves of one broker name."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_MEMBER_GROUP

    cluster_name: str
    broker_name: str


class WipeWritePerm(RequestHeader, frozen=True, kw_only=True):
    """Make producers leave this broker name before maintenance."""

    CODE: ClassVar[RequestCode] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker_name: str


class WritePermWiped(ResponseHeader, frozen=True, kw_only=True):
    """How many topics are read-only there now."""

    wipe_topic_count: int


class AddWritePerm(RequestHeader, frozen=True, kw_only=True):
    """Let producers return to this broker name."""

    CODE: ClassVar[RequestCode] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker_name: str


class WritePermAdded(ResponseHeader, frozen=True, kw_only=True):
    """How many topics are writable there now."""

    add_topic_count: int


class GetAllTopics(RequestHeader, frozen=True, kw_only=True):
    """Names of all topics; the body of the answer to this and the next five is TopicList."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


class GetTopicsByCluster(RequestHeader, frozen=True, kw_only=True):
    """Names of the topics that brokers of one cluster have."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


class GetSystemTopics(RequestHeader, frozen=True, kw_only=True):
    """Cluster and broker names, which are also topics, and a broker that knows the others."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class GetUnitTopics(RequestHeader, frozen=True, kw_only=True):
    """Topics that belong to a unit."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_UNIT_TOPIC_LIST


class GetUnitSubTopics(RequestHeader, frozen=True, kw_only=True):
    """Topics with subscriptions of a unit."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


class GetUnitSubNonUnitTopics(RequestHeader, frozen=True, kw_only=True):
    """Topics outside any unit that have subscriptions of a unit."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


class RegisterTopic(RequestHeader, frozen=True, kw_only=True):
    """One new topic of a registered broker; the body is a TopicRoute with its queues."""

    CODE: ClassVar[RequestCode] = RequestCode.REGISTER_TOPIC_IN_NAMESRV

    topic: str


class DeleteTopicRoute(RequestHeader, frozen=True, kw_only=True):
    """Forget a topic: everywhere, or on the brokers of one cluster."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


class PutKvConfig(RequestHeader, frozen=True, kw_only=True):
    """Set a value under a key of a namespace."""

    CODE: ClassVar[RequestCode] = RequestCode.PUT_KV_CONFIG

    namespace: str
    key: str
    value: str


class GetKvConfig(RequestHeader, frozen=True, kw_only=True):
    """The value under a key of a namespace."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_KV_CONFIG

    namespace: str
    key: str


class KvConfigFound(ResponseHeader, frozen=True, kw_only=True):
    """The requested value."""

    value: str


class DeleteKvConfig(RequestHeader, frozen=True, kw_only=True):
    """Remove a key from a namespace."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_KV_CONFIG

    namespace: str
    key: str


class ListKvConfig(RequestHeader, frozen=True, kw_only=True):
    """All keys of a namespace; the body of the answer is KvTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_KVLIST_BY_NAMESPACE

    namespace: str


class GetNameServerConfig(RequestHeader, frozen=True, kw_only=True):
    """The settings; the body of the answer is `name=value` lines."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_NAMESRV_CONFIG


class NameServerConfigFound(ResponseHeader, frozen=True, kw_only=True):
    """Contains more than the answer of Apache's name server."""

    changeable: str | None = None
    """Names of the settings that may change while the server runs, separated by commas."""


class UpdateNameServerConfig(RequestHeader, frozen=True, kw_only=True):
    """Change settings; the body is `name=value` lines."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_NAMESRV_CONFIG
