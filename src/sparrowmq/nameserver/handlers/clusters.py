"""Clusters and broker names: their members, and whether producers may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.net.audit import audit
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.body import BrokerMemberGroup, BrokerMemberGroupAnswer
from sparrowmq.protocol.headers.nameserver import (
    AddWritePerm,
    GetBrokerMemberGroup,
    GetClusterInfo,
    WipeWritePerm,
    WritePermAdded,
    WritePermWiped,
)

if TYPE_CHECKING:
    from sparrowmq.nameserver.server import NameServer

routes: Routes[NameServer] = Routes()


@routes.on(GetClusterInfo)
def get_cluster_info(server: NameServer, request: Request[GetClusterInfo]) -> Reply:
    """All clusters, broker names and addresses."""
    return Reply(body=server.table.cluster_info().to_json())


@routes.on(GetBrokerMemberGroup)
def get_broker_member_group(server: NameServer, request: Request[GetBrokerMemberGroup]) -> Reply:
    """Master and slaves of a broker name; empty for an unknown one, as from Apache."""
    header = request.header
    group = server.table.groups.get(header.broker_name)
    members = BrokerMemberGroup(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_addrs=group.addresses() if group is not None else {},
    )
    return Reply(body=BrokerMemberGroupAnswer(broker_member_group=members).to_json())


@routes.on(WipeWritePerm)
def wipe_write_perm(server: NameServer, request: Request[WipeWritePerm]) -> Reply:
    """Make all topics of a broker name read-only here, until the broker changes a topic."""
    name = request.header.broker_name
    count = server.table.wipe_write_perm(name)
    audit(request, "wiped the write permission of broker %r, %d topics", name, count)
    return Reply(WritePermWiped(wipe_topic_count=count))


@routes.on(AddWritePerm)
def add_write_perm(server: NameServer, request: Request[AddWritePerm]) -> Reply:
    """Make all topics of a broker name readable and writable here."""
    name = request.header.broker_name
    count = server.table.add_write_perm(name)
    audit(request, "added the write permission of broker %r, %d topics", name, count)
    return Reply(WritePermAdded(add_topic_count=count))
