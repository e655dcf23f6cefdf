"""Calls that consumers make to brokers, each as one function: request, answer, errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from sparrowmq.client.errors import BrokerRefused, NoRoute
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import ConsumerIdList
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import GetConsumerList
from sparrowmq.protocol.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    OffsetInEpoch,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.route import MASTER_ID

if TYPE_CHECKING:
    from sparrowmq.client.client_core import ClientCore
    from sparrowmq.client.route_table import FoundBroker

UNKNOWN_EPOCH = 0
"""Asks a broker for its epoch without claiming one. Apache's brokers have none."""


class Position(NamedTuple):
    """A queue offset, and the epoch of the broker's log in which it was learned, if it has any."""

    offset: int
    epoch: int | None = None


async def find_broker(
    client: ClientCore,
    topic: str,
    broker_name: str,
    broker_id: int = MASTER_ID,
    *,
    avoids_silent: bool = False,
) -> FoundBroker:
    """The broker with this id, else another of its name, refreshing the route once.

    With `avoids_silent`, picks another one also while that broker does not answer: a host that
    froze or lost power closes no connection, and name servers list it for up to 20 s, Apache's for
    two minutes. That is for pulls only: progress and locks stay with the master until it is gone.
    Raises NoRoute.
    """
    routes = client.route_table
    found = routes.find(broker_name, broker_id)
    if found is None:
        await routes.refresh(topic)
        found = routes.find(broker_name, broker_id)
    if found is None:
        raise NoRoute(topic, f"broker {broker_name} has no address now")
    sessions = client.sessions
    if avoids_silent and sessions.is_unreachable(found.address):
        another = routes.find(broker_name, routes.another(broker_name, found.broker_id))
        if another is not None and not sessions.is_unreachable(another.address):
            return another
    return found


async def address_of(client: ClientCore, topic: str, broker_name: str) -> str:
    """The address of the master, else of a slave, refreshing the route once. Raises NoRoute."""
    return (await find_broker(client, topic, broker_name)).address


async def master_address(client: ClientCore, topic: str, broker_name: str) -> str:
    """The address of the master, for requests that no slave can serve. Raises NoRoute."""
    broker = await find_broker(client, topic, broker_name)
    if not broker.is_master:
        raise NoRoute(topic, f"the master of broker {broker_name} is away")
    return broker.address


async def call(
    client: ClientCore, address: str, header: RequestHeader, body: bytes = b""
) -> Response:
    """Make a call that has to succeed. Raises BrokerRefused or NetError."""
    timeout_s = client.config.call_timeout_s
    response = await client.peers.call(address, header, body, timeout_s=timeout_s)
    if response.code != ResponseCode.SUCCESS:
        raise BrokerRefused(address, response.code, response.remark)
    return response


async def group_members(client: ClientCore, topic: str, group: str) -> list[str]:
    """Client ids of a group, from one broker of the topic. Raises NoRoute, BrokerRefused."""
    route = await client.route_table.fetch(topic)
    names = {data.broker_name for data in route.broker_datas} if route else ()
    brokers = {
        address: broker_id
        for name, broker_id, address in sorted(client.route_table.all_addresses())
        if name in names
    }
    if not brokers:
        raise NoRoute(topic, "no broker serves it now")
    # A broker that has just joined the topic, or returned, does not know members that have not
    # discovered it yet: a member that believed its answer would claim the queues of all the others.
    # Slaves get heartbeats too, and are asked where no master has been known for long.
    informed = client.heartbeats.best_informed(brokers)
    masters = [address for address in informed if brokers[address] == MASTER_ID]
    address = client.rng.choice(masters or informed)
    response = await call(client, address, GetConsumerList(consumer_group=group))
    return list(ConsumerIdList.from_json(response.body).consumer_id_list)


async def queue_owners(
    client: ClientCore, topic: str, group: str, broker_names: Iterable[str]
) -> dict[MessageQueue, str] | None:
    """Which member of a group holds which queue; None if brokers do not know. If a broker cannot be
    asked, its queues count as held by no member. Raises NoRoute."""
    owners: dict[MessageQueue, str] = {}
    is_known = False
    for name in sorted(broker_names):
        try:
            address = await address_of(client, topic, name)
            header = GetConsumerList(consumer_group=group, owners_of=topic)
            response = await call(client, address, header)
            known = ConsumerIdList.from_json(response.body).owners
        except (BrokerRefused, NetError, ProtocolError) as error:
            client.log.info("owners of %s at %s not known: %s", topic, name, error)
            continue
        if known is not None:
            is_known = True
            owners |= {MessageQueue(topic, name, number): owner for number, owner in known.items()}
    return owners if is_known else None


async def committed_offset(
    client: ClientCore,
    group: str,
    queue: MessageQueue,
    *,
    young_is_0: bool = False,
    only_looks: bool = False,
) -> Position | None:
    """The group's stored offset, or None. Any other failure is raised.

    With `young_is_0` brokers answer 0 for a queue that still has its first message, so that what
    was sent just before a group or queue was created is not skipped. `only_looks` tells them that
    the group will not continue at the answer, as it would after a reset.

    If a slave has none, that means nothing: the group may just have stored its first offset at the
    master, and would skip messages, or start again. Then this raises NoRoute, unless `only_looks`.
    """
    broker = await find_broker(client, queue.topic, queue.broker_name)
    address = broker.address
    header = QueryConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=young_is_0,
        only_looks=only_looks or None,
        epoch=UNKNOWN_EPOCH,
    )
    timeout_s = client.config.call_timeout_s
    response = await client.peers.call(address, header, timeout_s=timeout_s)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        if broker.is_master or only_looks:
            return None
        text = f"only the master of {queue.broker_name} knows where group {group} begins"
        raise NoRoute(queue.topic, f"{text}, and it is away")
    if response.code != ResponseCode.SUCCESS:
        raise BrokerRefused(address, response.code, response.remark)
    return _position(response)


async def commit_offset(
    client: ClientCore, group: str, queue: MessageQueue, position: Position
) -> str:
    """Store the group's progress at the master, or at a slave while the master is away. Returns the
    address of the broker that has it. Raises NoRoute, BrokerRefused, NetError."""
    broker = await find_broker(client, queue.topic, queue.broker_name)
    header = UpdateConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=position.offset,
        epoch=position.epoch,
    )
    await call(client, broker.address, header)
    return broker.address


async def max_offset(client: ClientCore, queue: MessageQueue) -> Position:
    """The offset the queue's next message will get."""
    address = await address_of(client, queue.topic, queue.broker_name)
    header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id, epoch=UNKNOWN_EPOCH)
    return _position(await call(client, address, header))


async def min_offset(client: ClientCore, queue: MessageQueue) -> int:
    """The oldest offset the queue still has."""
    address = await address_of(client, queue.topic, queue.broker_name)
    header = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
    return (await call(client, address, header)).header(OffsetFound).offset


async def offset_at(client: ClientCore, queue: MessageQueue, timestamp_ms: int) -> Position:
    """The offset of the first message stored at or after a time."""
    address = await address_of(client, queue.topic, queue.broker_name)
    header = SearchOffset(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        epoch=UNKNOWN_EPOCH,
    )
    return _position(await call(client, address, header))


def _position(response: Response) -> Position:
    found = response.header(OffsetInEpoch)
    return Position(found.offset, found.epoch)
