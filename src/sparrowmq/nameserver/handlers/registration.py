"""Brokers register, send heartbeats, and leave."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING

from sparrowmq.nameserver.brokers import LiveBroker, Registration
from sparrowmq.nameserver.checks import check_registration
from sparrowmq.nameserver.kv_config import ORDER_TOPIC_CONFIG
from sparrowmq.nameserver.silent_masters import answers
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.slices import in_slices
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.nameserver import (
    NAME_TAKEN,
    BrokerHeartbeat,
    BrokerRegistered,
    DataVersionCompared,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
)
from sparrowmq.protocol.registration import RegisterBrokerBody, body_checksum, whole
from sparrowmq.protocol.topic_config import RegisteredTopics

if TYPE_CHECKING:
    from sparrowmq.nameserver.server import NameServer

log = logging.getLogger(__name__)
routes: Routes[NameServer] = Routes()

_ANSWER_S = 4.0
"""How long a master may take to answer before another one takes over its name. One that was frozen
for 3 s or more asks whether it still has its name (`broker/replication/frozen_master.py`); one that
was frozen for less must not have lost it. Brokers wait 6 s for the answer to a registration."""
_AT_ONCE_BYTES = 1024
"""Larger bodies are read in slices: compressed, 400 topics may fit into this. 50,000 topics take
50 ms as JSON and more than twice as long compressed."""
_ZLIB = 0x78
_V3_0_11 = 37
"""Brokers before this version send only a topic table when they register."""


@routes.on(RegisterBroker)
def register_broker(
    server: NameServer, request: Request[RegisterBroker]
) -> Reply | Awaitable[Reply]:
    """Register a broker and its topics; the answer gives a slave its master's address.

    A second master of a name is refused while the first one answers: producers could send to one of
    them and consumers read from the other, depending on the name server they asked.
    """
    reading = _registration(server, request)
    if len(request.body) > _AT_ONCE_BYTES:
        return _register_large(server, request, reading)
    return _register(server, request, whole(reading))


async def _register_large(
    server: NameServer,
    request: Request[RegisterBroker],
    reading: Generator[None, None, Registration],
) -> Reply:
    # An update of a single topic may overtake it. Then the older data version counts here, and the
    # broker, which asks for it every 30 s, registers again.
    registration = await in_slices(reading, server.slices)
    reply = _register(server, request, registration)
    return reply if isinstance(reply, Reply) else await reply


def _register(
    server: NameServer, request: Request[RegisterBroker], registration: Registration
) -> Reply | Awaitable[Reply]:
    _check_is_whole(server, registration)
    _check_room(server, registration)
    newer = server.table.newer_holder(registration)
    if newer is not None:
        log.warning(
            "ignoring %s as broker %s %d: %s has a newer state",
            registration.address,
            registration.broker_name,
            registration.broker_id,
            newer.address,
        )
        return Reply(BrokerRegistered())
    rival = server.table.rival_master(registration)
    if rival is not None and rival.session is not request.connection:
        return _register_in_place_of(rival, server, request, registration)
    return _registered(server, request, registration)


async def _register_in_place_of(
    rival: LiveBroker,
    server: NameServer,
    request: Request[RegisterBroker],
    registration: Registration,
) -> Reply:
    """Register, unless the current master answers over the connection it registered with."""
    if await answers(rival, _ANSWER_S):
        name = registration.broker_name
        log.warning(
            "refused %s as master of broker %s: %s has that name and answers",
            registration.address,
            name,
            rival.address,
        )
        raise RequestRefused(
            NAME_TAKEN,
            f"broker {name} has a master at {rival.address}, which answers; stop that one first, "
            f"or give {registration.address} a name of its own",
        )
    reply = _registered(server, request, registration)
    # This way it learns that it lost its name as soon as it resumes, not in its next round.
    server.end_session(rival)
    return reply


def _registered(
    server: NameServer, request: Request[RegisterBroker], registration: Registration
) -> Reply:
    master = server.register(registration, request.connection)
    header = BrokerRegistered(
        ha_server_addr=master.ha_address if master is not None else None,
        master_addr=master.address if master is not None else None,
    )
    is_wanted = server.config.return_order_topic_config_to_broker
    order_config = server.kv.table(ORDER_TOPIC_CONFIG) if is_wanted else None
    return Reply(header, order_config.to_json() if order_config is not None else b"")


@routes.on(UnregisterBroker)
def unregister_broker(server: NameServer, request: Request[UnregisterBroker]) -> Reply:
    """Remove a broker that leaves; succeeds if it has left already."""
    server.unregister(request.header.broker_name, request.header.broker_addr)
    return Reply()


@routes.on(BrokerHeartbeat)
def broker_heartbeat(server: NameServer, request: Request[BrokerHeartbeat]) -> Reply:
    """Note a sign of life, which does not register a broker."""
    server.note_alive(request.header.broker_addr)
    return Reply()


@routes.on(QueryDataVersion)
def query_data_version(server: NameServer, request: Request[QueryDataVersion]) -> Reply:
    """Answer whether the broker has to register again. Asking counts as a sign of life."""
    offered = _read_data_version(request.body)
    address = request.header.broker_addr
    broker = server.table.live.get(address)
    server.note_alive(address)
    known = broker.data_version if broker is not None else None
    return Reply(
        DataVersionCompared(changed=known != offered),
        known.to_json() if known is not None else b"",
    )


def _registration(
    server: NameServer, request: Request[RegisterBroker]
) -> Generator[None, None, Registration]:
    header, config = request.header, server.config
    body = yield from _read_body(request)
    timeout_ms = header.heartbeat_timeout_millis
    registration = Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        timeout_ms=round(config.broker_timeout_s * 1000) if timeout_ms is None else timeout_ms,
        acting_master=header.enable_acting_master,
        zone_name=header.zone_name,
        topics=body.topics.topic_config_table.values(),
        data_version=body.topics.data_version,
        mappings=body.topics.topic_queue_mapping_info_map,
        filter_servers=body.filter_server_list,
    )
    yield from check_registration(registration, config)
    return registration


def _read_body(request: Request[RegisterBroker]) -> Generator[None, None, RegisterBrokerBody]:
    header, body = request.header, request.body
    crc32 = body_checksum(body)
    if header.body_crc32 not in (0, crc32):
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the body's CRC-32 is {crc32}, the header says {header.body_crc32}; send it again",
        )
    if not body:
        return RegisterBrokerBody()
    try:
        if request.version < _V3_0_11:
            return RegisterBrokerBody(topics=RegisteredTopics.from_json(body))
        # Apache's broker with compressedRegister=true compresses but sends compressed=false; JSON
        # never begins like zlib data.
        is_compressed = header.compressed or body[0] == _ZLIB
        return (yield from RegisterBrokerBody.decode_in_steps(body, compressed=is_compressed))
    except BodyError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the registration of {header.broker_name}: {error}"
        ) from error


def _read_data_version(body: bytes) -> DataVersion:
    try:
        return DataVersion.from_json(body)
    except BodyError as error:
        text = f"the body must be a data version: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error


def _check_room(server: NameServer, registration: Registration) -> None:
    live, most = server.table.live, server.config.max_brokers
    if registration.address not in live and len(live) >= most:
        text = f"{most} brokers are registered, more are not allowed"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    names = [topic.topic_name for topic in registration.topics]
    server.check_room(registration.broker_name, names)


def _check_is_whole(server: NameServer, registration: Registration) -> None:
    """Check that an unknown broker registers with all its topics.

    A single topic is an update. Mistaken for all topics, it would leave the others unknown until
    the broker's next change, for brokers that compare versions before they register.
    """
    name, number = registration.broker_name, registration.broker_id
    if len(registration.topics) == 1 and server.table.holder(name, number) is None:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"broker {name} {number} sent a single topic before it registered; "
            "register with all topics first",
        )
