"""The last moment of a broker: nobody may be left waiting for the answer to a pull.

A client that is only answered "nothing new" pulls again at once, on a connection that is about to
be closed, and the Go client then waits 30 s for an answer that cannot come. One that is refused
pauses for 3 s first, and finds the broker gone or back.
"""

import asyncio
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.name_servers import Registration
from sparrowmq.broker.tables import BrokerTables, last_subscriptions
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.endpoint import Endpoint
from sparrowmq.net.routes import Reply, Request
from sparrowmq.net.server import Server
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.pull import LitePullMessage, PullMessage

_QUIET_S = 0.1
"""A pull that was on its way when its turn came has arrived by then."""
_MAX_ROUNDS = 10
_HASTY_GOODBYE_S = 0.3


async def leave(registration: Registration, server: Server[Broker], tables: BrokerTables) -> None:
    """Say goodbye to name servers and clients, and end all connections.

    A broker whose store has failed is gone within a second: name servers drop it when its
    connection ends, and whoever waits for an answer is better served elsewhere.
    """
    broker = server.endpoint.context
    if broker.store.has_failed:
        await server.close(goodbye_s=_HASTY_GOODBYE_S)
        return
    await registration.unregister()
    await end_pulls(server.endpoint)
    await _save_subscriptions(broker, tables)
    await server.close()


async def _save_subscriptions(broker: Broker, tables: BrokerTables) -> None:
    until_ms = broker.clock() + int(broker.config.client_timeout_s * 1000)
    table = last_subscriptions(broker.consumers, until_ms)
    try:
        await broker.workers.run(tables.save_last_subscriptions, table)
    except (OSError, DiskFull) as error:  # it only makes some clients wait after the next start
        broker.log.warning("subscriptions are not kept: %s", error)


async def end_pulls(endpoint: Endpoint[Broker]) -> None:
    """Refuse the pulls that wait and those that still come, until no more come."""
    broker = endpoint.context
    refused = 0

    def refuse(broker: Broker, request: Request[Any]) -> Reply:
        nonlocal refused
        refused += 1
        text = f"broker {broker.config.broker_name} is stopping"
        return Reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=text)

    endpoint.handlers |= {PullMessage: refuse, LitePullMessage: refuse}
    broker.locks.end_waits()  # they pull again, and are refused
    broker.arrivals.end_all(lambda pull: pull.request.answer(refuse(broker, pull.request)))
    for _ in range(_MAX_ROUNDS):
        before = refused
        if endpoint.connections:
            await asyncio.sleep(_QUIET_S)
        if refused == before:
            break
