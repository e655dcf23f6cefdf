"""Where a topic is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.nameserver.encoded_routes import encode_route
from sparrowmq.nameserver.kv_config import ORDER_TOPIC_CONFIG
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.perm import is_writable

if TYPE_CHECKING:
    from sparrowmq.nameserver.brokers import BrokerGroup
    from sparrowmq.nameserver.server import NameServer
    from sparrowmq.protocol.route import QueueData

routes: Routes[NameServer] = Routes()

_V4_9_4 = 401
"""The first version whose clients read broker ids in quotes."""
_MEMBER_SYNC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
_SHOWN = 160


@routes.on(GetTopicRoute)
def get_topic_route(server: NameServer, request: Request[GetTopicRoute]) -> Reply:
    """The brokers of a topic and its queues on them."""
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
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, _unknown(topic))
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
    # Brokers that look for each other through this topic need to see who is who.
    may_stand_in = config.support_acting_master and not topic.startswith(_MEMBER_SYNC_PREFIX)
    shown: list[tuple[QueueData, BrokerGroup, bool]] = []
    for queues in sorted(table.topics.queues_of(topic).values(), key=lambda data: data.broker_name):
        group = table.groups[queues.broker_name]
        stands_in = may_stand_in and group.acting_master and not is_writable(queues.perm)
        # Where the master is away its slaves are shown to everybody, as by Apache.
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


def _unknown(topic: str) -> str:
    shown = topic if len(topic) <= _SHOWN else f"{topic[:_SHOWN]}…"
    return (
        f"no broker has registered topic {shown!r}; create it (sparrowmq topic create, "
        "mqadmin updateTopic), send to it where auto-creation is on, or check its name"
    )
