"""Connected clients, and the subscriptions of groups."""

from collections.abc import Generator

from msgspec import field

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import LiveMember, group_faults
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.slices import in_slices
from sparrowmq.protocol.body import GroupList
from sparrowmq.protocol.broker_stats import SubscriptionFound
from sparrowmq.protocol.codes import Language, ResponseCode
from sparrowmq.protocol.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from sparrowmq.protocol.headers.connections import (
    GetAllProducers,
    GetConsumerConnections,
    GetConsumersOfTopic,
    GetProducerConnections,
    GetSubscription,
    GetTopicsOfConsumer,
)
from sparrowmq.protocol.route import TopicList

routes: Routes[Broker] = Routes()


class CheckedConsumerConnection(ConsumerConnection, frozen=True, kw_only=True):
    """Adds what is wrong in the group, in fields that Apache's tools ignore."""

    unequal_subscriptions: dict[str, list[str]] = field(default_factory=dict)
    """Client id to subscriptions, if the members do not agree."""
    doubled_client_ids: list[str] = field(default_factory=list)
    """Client ids in use on several connections."""


@routes.on(GetConsumerConnections)
async def get_consumer_connections(
    broker: Broker, request: Request[GetConsumerConnections]
) -> Reply:
    """The live members of a consumer group."""
    name = request.header.consumer_group
    group = broker.consumers.group(name)
    if group is None:
        text = f"group {name} has no live member on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, text)
    faults = group_faults(group)
    answer = CheckedConsumerConnection(
        connection_set=tuple(map(_connection, group.members.values())),
        subscription_table=dict(group.subscriptions),
        consume_type=group.consume_type,
        message_model=group.message_model,
        consume_from_where=group.from_where,
        unequal_subscriptions=faults.unequal,
        doubled_client_ids=faults.doubled,
    )
    return Reply(body=await broker.workers.run(answer.to_json))


@routes.on(GetProducerConnections)
def get_producer_connections(broker: Broker, request: Request[GetProducerConnections]) -> Reply:
    """The live members of a producer group."""
    members = broker.producers.members(request.header.producer_group)
    if not members:
        text = f"producer group {request.header.producer_group} has no live member on this broker"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    answer = ProducerConnection(connection_set=tuple(map(_connection, members)))
    return Reply(body=answer.to_json())


@routes.on(GetAllProducers)
async def get_all_producers(broker: Broker, request: Request[GetAllProducers]) -> Reply:
    """All live producers by group."""
    table = await in_slices(_all_producers(broker), broker.slices)
    return Reply(body=await broker.workers.run(table.to_json))


def _all_producers(broker: Broker) -> Generator[None, None, ProducerTable]:
    zero_ms = broker.clock() - broker.monotonic()
    table = {}
    for group, members in broker.producers.groups():
        table[group] = tuple(
            ProducerInfo(
                client_id=member.client_id,
                remote_ip=member.connection.peer,
                language=_language(member),
                version=member.version,
                last_update_timestamp=zero_ms + member.last_seen_ms,
            )
            for member in members
        )
        yield
    return ProducerTable(data=table)


def _connection(member: LiveMember) -> ClientConnection:
    return ClientConnection(
        client_id=member.client_id,
        client_addr=member.connection.peer,
        language=_language(member),
        version=member.version,
    )


def _language(member: LiveMember) -> str:
    """The member's language; Java's tools fail on a name that is not in their list."""
    return member.language if member.language in Language.__members__ else Language.OTHER.name


@routes.on(GetConsumersOfTopic)
def get_consumers_of_topic(broker: Broker, request: Request[GetConsumersOfTopic]) -> Reply:
    """List groups that subscribe to a topic now, or have consumed it."""
    topic = request.header.topic
    groups = frozenset(broker.consumers.subscribers(topic)) | set(broker.offsets.groups_of(topic))
    return Reply(body=GroupList(group_list=groups).to_json())


@routes.on(GetTopicsOfConsumer)
def get_topics_of_consumer(broker: Broker, request: Request[GetTopicsOfConsumer]) -> Reply:
    """List topics that a group has consumed."""
    topics = frozenset(broker.offsets.topics_of(request.header.group))
    return Reply(body=TopicList(topic_list=topics, broker_addr=broker.address).to_json())


@routes.on(GetSubscription)
def get_subscription(broker: Broker, request: Request[GetSubscription]) -> Reply:
    """Return a live group's subscription to a topic."""
    header = request.header
    group = broker.consumers.group(header.group)
    wanted = None if group is None else group.subscriptions.get(header.topic)
    answer = SubscriptionFound(group=header.group, topic=header.topic, subscription_data=wanted)
    return Reply(body=answer.to_json())
