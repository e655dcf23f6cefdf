"""The live clients of a cluster: consumers and producers, each listed once, no matter how many
brokers it is connected to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once, while_it_answers
from sparrowmq.admin.errors import AdminError, BrokerRefusal
from sparrowmq.admin.groups import all_configs
from sparrowmq.admin.members import CheckedConnections, member, producers, subscribers
from sparrowmq.admin.topic_figures import groups_of_topic
from sparrowmq.admin.values import BrokerFailure, Listing
from sparrowmq.protocol.codes import ResponseCode, version_text
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from sparrowmq.protocol.names import check_group, check_topic


class ClientRole(StrEnum):
    """The role of a client. One with both roles is listed twice."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveClient:
    """A process that is connected as a consumer or as a producer."""

    client_id: str
    address: str
    language: str
    version: str
    """The version of RocketMQ's protocol, such as V5_3_3."""
    role: ClientRole
    groups: tuple[str, ...]
    brokers: tuple[str, ...]
    """Brokers that it is connected to."""
    since: datetime | None = None
    """When a consumer started, if it was asked and answered; producers do not report it."""
    is_doubled: bool = False
    """Whether several processes use its id: they take the same queues."""
    subscribes_otherwise: bool = False
    """Whether its broker reports that members of a group of it subscribe to different things;
    Apache's brokers do not."""


async def clients(
    cluster: ClusterCalls, *, role: ClientRole | None, group: str | None, topic: str | None
) -> Listing[LiveClient]:
    """The clients of a role, in a group, or consuming a topic. Raises ValueError,
    NoBrokerAnswers."""
    found: list[LiveClient] = []
    errors: dict[str, BrokerFailure] = {}
    if role is not ClientRole.PRODUCER:
        listed = await _consumers(cluster, group, topic)
        found += listed
        errors |= {each.broker: each for each in listed.errors}
    if role is not ClientRole.CONSUMER and topic is None:
        listed = await _producers(cluster, group)
        found += listed
        errors |= {each.broker: each for each in listed.errors if each.broker not in errors}
    return Listing(tuple(_once(found)), tuple(errors.values()))


async def with_start_times(cluster: ClusterCalls, listed: Sequence[LiveClient]) -> list[LiveClient]:
    """The same clients, with the start times of the consumers that answer."""

    async def ask(each: LiveClient) -> LiveClient:
        if each.role is ClientRole.PRODUCER:
            return each
        found = await member(cluster, each.groups[0], each.client_id, stacks=False)
        return replace(each, since=found.since)

    results = await at_once([partial(ask, each) for each in listed])
    return [
        each if isinstance(result, AdminError) else result
        for each, result in zip(listed, results, strict=True)
    ]


async def _consumers(
    cluster: ClusterCalls, group: str | None, topic: str | None
) -> Listing[LiveClient]:
    if group is not None:
        check_group(group)
    if topic is not None:
        check_topic(topic)

    async def ask(broker: str, address: str) -> list[LiveClient]:
        names = await _groups(cluster, address, group, topic)
        live = await while_it_answers(
            {name: partial(_connections, cluster, address, name) for name in names}
        )
        return [each for name in live for each in _clients_of(broker, name, live[name], topic)]

    answers = await cluster.ask_each(await cluster.readable(), ask)
    found = (one for each in answers.by_broker.values() for one in each)
    return Listing(tuple(found), answers.errors)


async def _groups(
    cluster: ClusterCalls, address: str, group: str | None, topic: str | None
) -> list[str]:
    if group is not None:
        return [group]
    if topic is not None:
        return sorted(await groups_of_topic(cluster, address, topic))
    return sorted(await all_configs(cluster, address))


async def _connections(
    cluster: ClusterCalls, address: str, group: str
) -> CheckedConnections | None:
    try:
        response = await cluster.call(address, GetConsumerConnections(consumer_group=group))
    except BrokerRefusal as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return None
    return CheckedConnections.from_json(response.body)


def _clients_of(
    broker: str, group: str, live: CheckedConnections | None, topic: str | None
) -> Iterable[LiveClient]:
    if live is None:
        return
    uses = Counter(one.client_id for one in live.connection_set)
    for one in live.connection_set if topic is None else subscribers(live, topic):
        yield LiveClient(
            client_id=one.client_id,
            address=one.client_addr,
            language=one.language,
            version=version_text(one.version),
            role=ClientRole.CONSUMER,
            groups=(group,),
            brokers=(broker,),
            is_doubled=uses[one.client_id] > 1 or one.client_id in (live.doubled_client_ids or ()),
            subscribes_otherwise=one.client_id in live.unequal_subscriptions,
        )


async def _producers(cluster: ClusterCalls, group: str | None) -> Listing[LiveClient]:
    listed = await producers(cluster)
    found = (
        LiveClient(
            client_id=one.client_id,
            address=one.address,
            language=one.language,
            version=one.version,
            role=ClientRole.PRODUCER,
            groups=(one.group,),
            brokers=(one.broker,),
        )
        for one in listed
        if group in (None, one.group)
    )
    return Listing(tuple(found), listed.errors)


def _once(found: Iterable[LiveClient]) -> list[LiveClient]:
    """Each client and role once, with all its groups and brokers."""
    known: dict[tuple[str, ClientRole], LiveClient] = {}
    for each in found:
        key = (each.client_id, each.role)
        before = known.get(key)
        known[key] = (
            each
            if before is None
            else replace(
                before,
                groups=tuple(sorted({*before.groups, *each.groups})),
                brokers=tuple(sorted({*before.brokers, *each.brokers})),
                is_doubled=before.is_doubled or each.is_doubled,
                subscribes_otherwise=before.subscribes_otherwise or each.subscribes_otherwise,
            )
        )
    return [known[key] for key in sorted(known)]
