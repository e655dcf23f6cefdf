"""Calls that brokers make to consumers."""

from sparrowmq.client.client import Client
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.headers.clients import NotifyConsumerIdsChanged

routes: Routes[Client] = Routes()


@routes.on(NotifyConsumerIdsChanged)
def consumer_ids_changed(client: Client, request: Request[NotifyConsumerIdsChanged]) -> Reply:
    """Rebalance now."""
    member = client.consumers.get(request.header.consumer_group)
    if member is not None:
        member.members_changed()
    return Reply()
