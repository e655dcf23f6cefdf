"""Asking a broker whether it accepts subscriptions, before a consumer counts on them."""

from collections.abc import Iterable

from sparrowmq.client.broker_calls import address_of, call
from sparrowmq.client.client import Client
from sparrowmq.client.errors import NoRoute
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.connections import CheckClientRequest
from sparrowmq.protocol.headers.clients import CheckClientConfig
from sparrowmq.protocol.subscription import SubscriptionData


async def check_subscriptions(
    client: Client, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Raise BrokerRefused for a condition that a broker of the topic does not accept.

    Tags are always fine. A topic without a route is checked by its pulls.
    """
    for subscription in subscriptions:
        if subscription.is_tag:
            continue
        try:
            await _check(client, group, subscription)
        except (NoRoute, NetError) as error:
            client.log.info("subscription to %s not checked: %s", subscription.topic, error)


async def _check(client: Client, group: str, subscription: SubscriptionData) -> None:
    topic = subscription.topic
    route = await client.route_table.fetch(topic)
    if route is None or not route.broker_datas:
        raise NoRoute(topic, "it does not exist yet")
    address = await address_of(client, topic, route.broker_datas[0].broker_name)
    body = CheckClientRequest(
        client_id=client.client_id, group=group, subscription_data=subscription
    )
    await call(client, address, CheckClientConfig(), body.to_json())
