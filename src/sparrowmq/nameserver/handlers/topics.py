"""Topics: routes, lists of topics, and adding or deleting single topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.nameserver.checks import check_topic
from sparrowmq.nameserver.kv_config import ORDER_TOPIC_CONFIG
from sparrowmq.nameserver.route_encoding import encode_route
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ROUTE_LOST, ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.nameserver import (
    DeleteTopicRoute,
    GetAllTopics,
    GetSystemTopics,
    GetTopicRoute,
    GetTopicsByCluster,
    GetUnitSubNonUnitTopics,
    GetUnitSubTopics,
    GetUnitTopics,
    RegisterTopic,
)
from sparrowmq.protocol.perm import is_writable
from sparrowmq.protocol.route import QueueData, TopicList, TopicRoute

if TYPE_CHECKING:
    from sparrowmq.nameserver.brokers import BrokerGroup
    from sparrowmq.nameserver.server import NameServer
    from sparrowmq.protocol.route import QueueData

routes: Routes[NameServer] = Routes()
_V4_9_4 = 401
"""The first version whose clients read broker ids in quotes."""
_MEMBER_SYNC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
_SHOWN = 160
_SHOWN_BROKERS = 5
_UNIT = 1
_UNIT_SUB = 2


@routes.on(GetTopicRoute)
def get_topic_route(server: NameServer, request: Request[GetTopicRoute]) -> Reply:
    """Answer with a topic's brokers and its queues on them."""
    if not server.is_in_service:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            "the name server has just started and waits for brokers; ask again in a moment",
        )
    topic, zone = request.header.topic, _zone(request.header)
    quoted = request.version >= _V4_9_4 or bool(request.header.accept_standard_json_only)
    answer = None if zone else server.table.encoded.get(topic, quoted)
    if answer is None:
        if topic not in server.table.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, _no_route(server, topic))
        answer = _encode(server, topic, quoted, zone)
        if not zone:
            server.table.encoded.put(topic, quoted, answer)
    return Reply(body=answer)


def _zone(header: GetTopicRoute) -> str:
    """The zone whose brokers a client wants; empty when it wants all of them."""
    wants_its_own = (header.zone_mode or "").lower() == "true"
    return (header.zone_name or "").strip().lower() if wants_its_own else ""


def _encode(server: NameServer, topic: str, quoted: bool, zone: str) -> bytes:
    table, config = server.table, server.config
    # Brokers that find each other through this topic need to see the real roles.
    may_stand_in = config.support_acting_master and not topic.startswith(_MEMBER_SYNC_PREFIX)
    shown: list[tuple[QueueData, BrokerGroup, bool]] = []
    for queues in sorted(table.topics.queues_of(topic).values(), key=lambda data: data.broker_name):
        group = table.groups[queues.broker_name]
        stands_in = may_stand_in and group.acting_master and not is_writable(queues.perm)
        # If the master is away, all clients get its slaves, as from Apache.
        has_master = group.master is not None or stands_in
        if not zone or not has_master or (group.zone_name or "").lower() == zone:
            shown.append((queues, group, stands_in))
    members = (broker for _, group, _ in shown for broker in group.members.values())
    return encode_route(
        [queues for queues, _, _ in shown],
        [group.encoded(quoted=quoted, stand_in=stands_in) for _, group, stands_in in shown],
        order_conf=server.kv.get(ORDER_TOPIC_CONFIG, topic)
        if config.order_message_enable
        else None,
        filter_servers={
            each.address: each.filter_servers for each in members if each.filter_servers
        },
        mappings=table.topics.mappings_of(topic),
    )


def _no_route(server: NameServer, topic: str) -> str:
    """Why a topic has no route, and what to do."""
    lost = server.lost.having(topic)
    if lost:
        now_ms = server.clock()
        brokers = ", ".join(each.text(now_ms) for each in lost[:_SHOWN_BROKERS])
        return f"{ROUTE_LOST}{brokers}; start it again"
    shown = topic if len(topic) <= _SHOWN else f"{topic[:_SHOWN]}…"
    return (
        f"no broker has registered topic {shown!r}; create it (sparrowmq topic create, "
        "mqadmin updateTopic), send to it where auto-creation is on, or check its name"
    )


# ---- lists of topics


@routes.on(GetAllTopics)
def get_all_topics(server: NameServer, request: Request[GetAllTopics]) -> Reply:
    """Every topic that a live broker has."""
    _check_is_allowed(server.config.enable_all_topic_list, "enableAllTopicList")
    return _listed(frozenset(server.table.topics.names()))


@routes.on(GetTopicsByCluster)
def get_topics_by_cluster(server: NameServer, request: Request[GetTopicsByCluster]) -> Reply:
    """The topics that brokers of one cluster have; none for an unknown cluster."""
    _check_is_allowed(server.config.enable_topic_list, "enableTopicList")
    table = server.table
    names = table.clusters().get(request.header.cluster, ())
    return _listed(frozenset().union(*(table.topics.of_broker(name) for name in names)))


@routes.on(GetSystemTopics)
def get_system_topics(server: NameServer, request: Request[GetSystemTopics]) -> Reply:
    """Cluster and broker names, and the address of a broker that knows the other system topics."""
    table = server.table
    return _listed(
        frozenset(table.clusters()) | frozenset(table.groups),
        broker_addr=next(iter(table.live), None),
    )


@routes.on(GetUnitTopics)
def get_unit_topics(server: NameServer, request: Request[GetUnitTopics]) -> Reply:
    """Topics that belong to a unit."""
    _check_is_allowed(server.config.enable_topic_list, "enableTopicList")
    return _listed(server.table.topics.names_with_flag(lambda flag: flag & _UNIT != 0))


@routes.on(GetUnitSubTopics)
def get_unit_sub_topics(server: NameServer, request: Request[GetUnitSubTopics]) -> Reply:
    """Topics with subscriptions of a unit."""
    _check_is_allowed(server.config.enable_topic_list, "enableTopicList")
    return _listed(server.table.topics.names_with_flag(lambda flag: flag & _UNIT_SUB != 0))


@routes.on(GetUnitSubNonUnitTopics)
def get_unit_sub_non_unit_topics(
    server: NameServer, request: Request[GetUnitSubNonUnitTopics]
) -> Reply:
    """Topics outside any unit that have subscriptions of a unit."""
    _check_is_allowed(server.config.enable_topic_list, "enableTopicList")
    both = _UNIT | _UNIT_SUB
    return _listed(server.table.topics.names_with_flag(lambda flag: flag & both == _UNIT_SUB))


def _listed(topics: frozenset[str], broker_addr: str | None = None) -> Reply:
    return Reply(body=TopicList(topic_list=topics, broker_addr=broker_addr).to_json())


def _check_is_allowed(is_enabled: bool, setting: str) -> None:
    if not is_enabled:
        text = f"topic lists are switched off here ({setting}=false)"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)


# ---- single topics


@routes.on(RegisterTopic)
def register_topic(server: NameServer, request: Request[RegisterTopic]) -> Reply:
    """Add a topic that a broker created and announces before its next registration."""
    topic = request.header.topic
    queue_datas = _read_queues(request.body)
    for queues in queue_datas:
        _check_queues(server, topic, queues)
    for queues in queue_datas:
        server.table.topics.put(topic, queues)
    return Reply()


@routes.on(DeleteTopicRoute)
def delete_topic_route(server: NameServer, request: Request[DeleteTopicRoute]) -> Reply:
    """Forget a topic; brokers that still have it add it again when they register."""
    header = request.header
    server.table.delete_topic(header.topic, header.cluster_name or None)
    server.lost.forget_topic(header.topic)
    where = f"cluster {header.cluster_name!r}" if header.cluster_name else "all clusters"
    audit(request, "deleted the route of topic %r in %s", header.topic, where)
    return Reply()


def _read_queues(body: bytes) -> tuple[QueueData, ...]:
    if not body:
        return ()
    try:
        return TopicRoute.from_json(body).queue_datas
    except BodyError as error:
        text = f"the body must be a topic route: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error


def _check_queues(server: NameServer, topic: str, queues: QueueData) -> None:
    check_topic(topic, queues, server.config.max_queues_per_topic)
    name = queues.broker_name
    if name not in server.table.groups:
        text = f"topic {topic} names broker {name[:255]!r}, which has not registered"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    server.check_room(name, (topic,))
