"""Whether a broker accepts subscriptions, and whether the group's other members have the same."""

from collections.abc import Iterable

from sparrowmq.client.broker_calls import address_of, call
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError, NoRoute
from sparrowmq.client.subscriptions import differences
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.connections import CheckClientRequest, ConsumerConnection
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import CheckClientConfig
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from sparrowmq.protocol.names import is_retry_topic
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


async def report_differences(
    client: Client, group: str, subscriptions: Iterable[SubscriptionData]
) -> str:
    """What the group's live members subscribe to and we do not, or the other way round; logged.

    Asked before the first heartbeat, with which ours would become the group's. Never an error: a
    subscription that is changed in one process after the other looks the same for a while.
    """
    ours = [one for one in subscriptions if not is_retry_topic(one.topic)]
    for topic in sorted(one.topic for one in ours):
        try:
            route = await client.route_table.fetch(topic)
            if route is None or not route.broker_datas:
                continue
            address = await address_of(client, topic, route.broker_datas[0].broker_name)
            response = await call(client, address, GetConsumerConnections(consumer_group=group))
            known = ConsumerConnection.from_json(response.body)
        except (ClientError, NetError, ProtocolError) as error:
            client.log.debug("subscriptions of %s not compared: %s", group, error)
            continue  # mostly: nobody of the group is there
        difference = differences(ours, known.subscription_table.values())
        if difference:
            others = ", ".join(sorted(one.client_id for one in known.connection_set))
            client.log.warning(
                "group %s: its members (%s) subscribe differently: %s. Messages will be lost"
                " until all members have the same subscriptions",
                group,
                others,
                difference,
            )
        return difference
    return ""
