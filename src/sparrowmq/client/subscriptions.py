"""What a consumer subscribes to: tags, an SQL92 condition, or a function; and its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrowmq.client.argument_checks import check_function, check_kind
from sparrowmq.client.broker_calls import address_of, call
from sparrowmq.client.errors import ClientError, NoRoute
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.connections import CheckClientRequest, ConsumerConnection
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import CheckClientConfig
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import check_topic, is_retry_topic
from sparrowmq.protocol.sql92 import check_sql92
from sparrowmq.protocol.subscription import SQL92, TAG, SubscriptionData
from sparrowmq.protocol.tags import tags_fault

if TYPE_CHECKING:
    from sparrowmq.client.client_core import ClientCore

Accepts = Callable[[MessageExt], bool]


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition on message properties, checked by the broker: `Sql("amount > 3")`.

    Raises ValueError that names the position of the mistake in the expression.
    """

    expression: str

    def __post_init__(self) -> None:
        check_kind("the expression of Sql", self.expression, str)
        check_sql92(self.expression)


@dataclass(frozen=True, slots=True)
class Only:
    """A filter function that runs in the consumer, after the broker has filtered by tags.

    Messages that it rejects count as consumed; if it raises, the message counts as failed.
    """

    accepts: Accepts
    tags: str = "*"

    def __post_init__(self) -> None:
        check_function("the filter of Only", self.accepts)
        check_tags("the tags of Only", self.tags)


Filter = str | Sql | Only
"""Tags as `created || paid` (`*` for all), a condition, or a function."""


def check_tags(name: str, expression: object) -> None:
    """Raises ValueError for tags that make no sense (see `tags_fault`)."""
    check_kind(name, expression, str)
    assert isinstance(expression, str)
    fault = tags_fault(expression, for_comma="Sql(\"TAGS = 'a,b'\")")
    if fault is not None:
        raise ValueError(f"{name} is {expression!r}, {fault}")


class Subscriptions:
    """Topics with their filters. The version of a subscription is the time it last changed.

    Versions only grow, even if the clock is set back: brokers ignore subscriptions that are not
    newer.
    """

    def __init__(self, filters: Mapping[str, Filter]) -> None:
        self._filters: dict[str, Filter] = {}
        self._datas: dict[str, SubscriptionData] = {}
        self._versions: dict[str, int] = {}
        check_filters(filters)
        for topic, choice in filters.items():
            self.add(topic, choice, 0)

    def __contains__(self, topic: object) -> bool:
        return topic in self._filters

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def topics(self) -> set[str]:
        """All topics."""
        return set(self._filters)

    def get(self, topic: str) -> SubscriptionData | None:
        """A topic's subscription, as pulls and heartbeats send it."""
        return self._datas.get(topic)

    def all(self) -> tuple[SubscriptionData, ...]:
        """All subscriptions, ordered by topic."""
        return tuple(self._datas[topic] for topic in sorted(self._datas))

    def add(self, topic: str, choice: Filter, now_ms: int) -> None:
        """Subscribe, or change the filter. Raises ValueError for an illegal topic or filter."""
        check_topic(topic)
        data = _data(topic, choice, self._next_version(topic, now_ms))
        self._filters[topic] = choice
        self._keep(data)

    def remove(self, topic: str) -> None:
        """Unsubscribe; the next rebalance gives up the topic's queues."""
        self._filters.pop(topic, None)
        self._datas.pop(topic, None)

    def renew(self, topics: Iterable[str], now_ms: int) -> None:
        """The assignment changed: a new version shows brokers which subscription is newest."""
        for topic in topics:
            if topic in self._filters:
                version = self._next_version(topic, now_ms)
                self._keep(_data(topic, self._filters[topic], version))

    def _next_version(self, topic: str, now_ms: int) -> int:
        return max(now_ms, self._versions.get(topic, -1) + 1)

    def _keep(self, data: SubscriptionData) -> None:
        self._datas[data.topic] = data
        self._versions[data.topic] = data.sub_version

    def function(self, topic: str) -> Accepts | None:
        """The function that filters a topic's messages, or None."""
        choice = self._filters.get(topic)
        return choice.accepts if isinstance(choice, Only) else None

    @property
    def has_functions(self) -> bool:
        """Whether any topic is filtered by a function."""
        return any(isinstance(choice, Only) for choice in self._filters.values())


def _data(topic: str, choice: Filter, version: int) -> SubscriptionData:
    match choice:
        case Sql(expression):
            return SubscriptionData.build(topic, expression, version=version, expression_type=SQL92)
        case Only(_, tags) | str(tags):
            check_tags(f"the filter of topic {topic}", tags)
            return SubscriptionData.build(topic, tags, version=version, expression_type=TAG)
    raise ValueError(f"the filter of topic {topic} is {choice!r}, must be tags, Sql or Only")


def check_filters(filters: object) -> None:
    """Raises ValueError for anything but a mapping: people forget the filter and pass topics."""
    if not isinstance(filters, Mapping):
        text = "must give a filter for each topic, such as {'orders': '*'}"
        raise ValueError(f"subscriptions are {filters!r}, {text}")


def without_functions(filters: Mapping[str, Filter]) -> Mapping[str, Filter]:
    """Returns the filters unchanged. Raises ValueError for a function, which only a consumer with a
    handler can run."""
    check_filters(filters)
    for topic, choice in filters.items():
        if isinstance(choice, Only):
            raise ValueError(f"topic {topic}: a consumer that polls filters what it polled itself")
    return filters


def wanted(messages: list[MessageExt], subscription: SubscriptionData) -> list[MessageExt]:
    """The messages that really match: the broker compares hashes, which may collide; the client
    compares the tags themselves."""
    if not subscription.is_tag or not subscription.tags_set:
        return messages
    return [message for message in messages if subscription.takes_tag(message.tags)]


def differences(ours: Iterable[SubscriptionData], theirs: Iterable[SubscriptionData]) -> str:
    """How two sets of subscriptions differ, in words, topic by topic; empty if they are equal."""
    mine, other = _by_topic(ours), _by_topic(theirs)
    return "; ".join(
        f"topic {topic}: {mine.get(topic, 'not subscribed')} here,"
        f" {other.get(topic, 'not subscribed')} there"
        for topic in sorted(mine.keys() | other.keys())
        if mine.get(topic) != other.get(topic)
    )


def _by_topic(subscriptions: Iterable[SubscriptionData]) -> dict[str, str]:
    return {
        one.topic: f"{one.sub_string!r}"
        if one.is_tag
        else f"{one.expression_type} {one.sub_string!r}"
        for one in subscriptions
        if not is_retry_topic(one.topic)
    }


# ---- checks: does a broker accept them, and do the group's other members have the same


async def check_subscriptions(
    client: ClientCore, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Raises BrokerRefused for a condition that a broker of the topic rejects.

    Tags are always accepted. A topic without a route is checked when it is pulled.
    """
    for subscription in subscriptions:
        if subscription.is_tag:
            continue
        try:
            await _check(client, group, subscription)
        except (NoRoute, NetError) as error:
            client.log.info("subscription to %s not checked: %s", subscription.topic, error)


async def _check(client: ClientCore, group: str, subscription: SubscriptionData) -> None:
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
    client: ClientCore, group: str, subscriptions: Iterable[SubscriptionData]
) -> str:
    """Log what the group's live members subscribe to and we do not, or the other way round.

    Runs before the first heartbeat, since that makes our subscription the group's. Never an error:
    while processes change their subscription one after the other, it looks the same for a while.
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
            continue  # mostly: no member of the group is there
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
