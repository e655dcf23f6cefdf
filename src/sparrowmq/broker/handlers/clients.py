"""Heartbeats, unregistering, the live members of a group, and checks before a consumer starts."""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import ConsumerGroup, LiveMember, group_faults
from sparrowmq.broker.pull_filter import sql_filter
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import CheckClientRequest, ConsumerIdList
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.clients import (
    CheckClientConfig,
    GetConsumerList,
    Heartbeat,
    HeartbeatAnswer,
    UnregisterClient,
)
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData, ProducerData
from sparrowmq.protocol.names import group_fault, retry_topic
from sparrowmq.protocol.subscription import SQL92

routes: Routes[Broker] = Routes()
_GROUPS_AT_ONCE = 256
"""Groups of one heartbeat registered before others get their turn: a new group takes 30 µs."""


@routes.on(Heartbeat)
def heartbeat(broker: Broker, request: Request[Heartbeat]) -> Handled:
    """Register the groups of a client; members of a changed group are notified to rebalance."""
    session = request.header.session
    if session is not None and not request.body:
        return _keep_alive(broker, session)
    data = _heartbeat_data(request)
    if max(len(data.consumer_data_set), len(data.producer_data_set)) > _GROUPS_AT_ONCE:
        return _register_in_slices(broker, request, data)
    is_sub_change = _register_groups(broker, request, data, data.consumer_data_set)
    _register_producers(broker, request, data, data.producer_data_set)
    return _answer(broker, request, data, is_sub_change=is_sub_change)


def _keep_alive(broker: Broker, session: str) -> Reply:
    if not broker.sessions.keep_alive(session):
        text = f"session {session} has ended; its member's queues may be others' now"
        raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, text)
    return Reply(HeartbeatAnswer())


def _heartbeat_data(request: Request[Heartbeat]) -> HeartbeatData:
    try:
        data = HeartbeatData.from_json(request.body)
    except BodyError as error:
        text = f"the heartbeat's body cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    if not data.client_id:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, "the heartbeat has no client id")
    for consumer in data.consumer_data_set:
        fault = group_fault(consumer.group_name)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    return data


async def _register_in_slices(
    broker: Broker, request: Request[Heartbeat], data: HeartbeatData
) -> Reply:
    """Register in slices: a client with thousands of groups must not keep all others waiting."""
    is_sub_change = False
    for first in range(0, len(data.consumer_data_set), _GROUPS_AT_ONCE):
        groups = data.consumer_data_set[first : first + _GROUPS_AT_ONCE]
        is_sub_change |= _register_groups(broker, request, data, groups)
        await asyncio.sleep(0)
    for first in range(0, len(data.producer_data_set), _GROUPS_AT_ONCE):
        producers = data.producer_data_set[first : first + _GROUPS_AT_ONCE]
        _register_producers(broker, request, data, producers)
        await asyncio.sleep(0)
    return _answer(broker, request, data, is_sub_change=is_sub_change)


def _register_groups(
    broker: Broker,
    request: Request[Heartbeat],
    data: HeartbeatData,
    groups: tuple[ConsumerData, ...],
) -> bool:
    """Register some groups of a client; returns whether it must send its subscriptions."""
    is_sub_change = False
    for consumer in groups:
        is_sub_change |= _join(broker, _member(broker, request, data), consumer, data)
    return is_sub_change


def _register_producers(
    broker: Broker,
    request: Request[Heartbeat],
    data: HeartbeatData,
    producers: tuple[ProducerData, ...],
) -> None:
    most = broker.groups.max_groups
    left_out = sum(
        not broker.producers.join(producer.group_name, _member(broker, request, data), most)
        for producer in producers
    )
    if left_out:
        text = "%d producer groups of %s are not registered: %d are known (max_groups)"
        broker.log.warning(text, left_out, data.client_id, most)


def _member(broker: Broker, request: Request[Heartbeat], data: HeartbeatData) -> LiveMember:
    connection = request.connection
    return LiveMember(
        data.client_id, connection, request.language, request.version, broker.monotonic()
    )


def _join(broker: Broker, member: LiveMember, consumer: ConsumerData, data: HeartbeatData) -> bool:
    """Register one group; returns whether a version 2 client must send its subscriptions."""
    config = broker.groups.find(consumer.group_name)
    if config is None:
        return False
    broker.topics.get_or_create(retry_topic(consumer.group_name), config.retry_queue_nums)
    live = broker.consumers.group(consumer.group_name)
    known = None if live is None else live.members.get(member.connection)
    member.fingerprint = data.heartbeat_fingerprint
    # Compare with its own last fingerprint, not with the group's as Apache does: there, members
    # that differ in some other group make each other send everything forever
    is_sub_change = known is not None and known.fingerprint != member.fingerprint
    if data.without_sub and (known is None or is_sub_change):
        # Its subscriptions are not known here: it has to send them before it counts as a member
        return True
    changed = broker.consumers.join(member, consumer, with_subscriptions=not data.without_sub)
    live = broker.consumers.group(consumer.group_name)
    assert live is not None
    if changed:
        broker.consumers.replace_older(member, consumer.group_name)
        broker.log.info("members of group %s: %d", live.name, len(live.client_ids))
        broker.notices.members_changed(live)
    _report_faults(broker, live)
    return is_sub_change


def _report_faults(broker: Broker, group: ConsumerGroup) -> None:
    """Log once when a group's members begin to disagree, and once when they agree again."""
    if group.is_checked:
        return
    group.is_checked = True
    faults = str(group_faults(group))
    if faults == group.faults:
        return
    group.faults = faults
    if faults:
        broker.log.warning("group %s: %s", group.name, faults)
    else:
        broker.log.info("group %s: its members agree again", group.name)


def _answer(
    broker: Broker, request: Request[Heartbeat], data: HeartbeatData, *, is_sub_change: bool
) -> Reply:
    session = request.header.session
    life_s = broker.config.session_timeout_s
    has_session = session is not None and life_s > 0
    return Reply(
        HeartbeatAnswer(
            # Version 1 clients ignore the flag; Apache always says true to them
            is_sub_change=is_sub_change or not data.heartbeat_fingerprint,
            session=broker.sessions.open(request.connection, broker.rng) if has_session else None,
            session_ms=int(life_s * 1000) if has_session else None,
        )
    )


@routes.on(UnregisterClient)
def unregister_client(broker: Broker, request: Request[UnregisterClient]) -> Reply:
    """Remove a client from a group; its queues are free at once."""
    header = request.header
    if header.producer_group:
        broker.producers.leave(request.connection, header.producer_group)
    if header.consumer_group:
        gone = broker.consumers.leave(request.connection, header.consumer_group)
        if gone is not None:
            broker.member_left(gone[0], gone[1].client_id)
        if not broker.consumers.has_member_on(request.connection):
            # Producers may live on in the connection; they have no session.
            broker.sessions.forget(request.connection)
    return Reply()


@routes.on(GetConsumerList)
def get_consumer_list(broker: Broker, request: Request[GetConsumerList]) -> Reply:
    """Client ids of the live members, from which every member computes the same allocation."""
    live = broker.consumers.group(request.header.consumer_group)
    if live is None:
        text = f"group {request.header.consumer_group} has no live member on this broker"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    topic = request.header.owners_of
    owners = None if topic is None else broker.locks.owners(live.name, topic)
    answer = ConsumerIdList(consumer_id_list=tuple(live.client_ids), owners=owners)
    return Reply(body=answer.to_json())


@routes.on(CheckClientConfig)
def check_client_config(broker: Broker, request: Request[CheckClientConfig]) -> Reply:
    """Check a subscription: tag expressions are always fine; an SQL92 condition has to be valid."""
    try:
        wanted = CheckClientRequest.from_json(request.body).subscription_data
    except BodyError as error:
        text = f"the client's configuration cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    if wanted is None or wanted.is_tag:
        return Reply()
    if wanted.expression_type != SQL92:
        text = f"expression type {wanted.expression_type} is unknown, allowed are TAG and SQL92"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text)
    sql_filter(wanted.sub_string)
    return Reply()
