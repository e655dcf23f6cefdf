"""Graceful shutdown: reject parked and incoming pulls, let running saves finish, save the rest.

```
serving ─▶ draining: the broker leaves the name servers and rejects pulls
        ─▶ sends are refused, those that wait for the disk or for slaves get their answers
        ─▶ connections are closed, slaves get the rest of the log and the last tables
        ─▶ the loops end, none of them in the middle of a save (`net.tasks.running`)
        ─▶ stopped: everything is durable, files are closed
```

Pulls are rejected because a client whose pull is answered with "nothing new" pulls again at once,
on a connection that is about to be closed, and the Go client then waits 30 s for an answer that
cannot come. A client whose pull is rejected pauses for 3 s, and finds the broker gone or back.

Sends are accepted until the last moment, because a client may know no other broker. But a send
whose connection ends before it is answered is sent again, and stored twice: if sends wait, no more
are accepted, and the last ones are answered first. For the same reason answers that were held to
slow producers down are written, and no more are held.
"""

import asyncio

from sparrowmq.broker.broker import Broker, BrokerState
from sparrowmq.broker.delivery import delivery
from sparrowmq.broker.handlers.pull import reject
from sparrowmq.broker.registration import BrokerRegistration
from sparrowmq.broker.replication.last_tables import give_tables
from sparrowmq.broker.tables import last_subscriptions
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.peers import Peers
from sparrowmq.net.server import Server

_QUIET_S = 0.1
"""A pull that was in transit when the last one was rejected has arrived after this time."""
_MAX_ROUNDS = 10
_GRACE_AFTER_FAILURE_S = 0.3
_SENDS_S = 2.0
"""How long sends may keep waiting; then they are answered with what they lack."""
_SLAVES_S = 2.0
"""How long a stopping broker waits for its slaves to get the rest."""
_TABLES_S = 1.0
"""How long it then waits for them to take its tables."""


async def drain(registration: BrokerRegistration, server: Server[Broker], peers: Peers) -> None:
    """Leave the name servers, reject pulls, and close all connections.

    A broker whose store has failed stops within a second: name servers drop it when its connection
    ends, and clients that wait for an answer are better served elsewhere.
    """
    broker = server.endpoint.context
    broker.traffic.slowing.release()
    if broker.store.has_failed:
        broker.state = BrokerState.DRAINING
        broker.replication.close()
        await server.close(grace_s=_GRACE_AFTER_FAILURE_S)
        return
    await registration.unregister()
    await reject_pulls(server)
    await _save_subscriptions(broker)
    if broker.durability.is_sync:
        name = broker.config.broker_name
        text = f"broker {name} is stopping; send to another one, or try later"
        broker.refuse_sends("stop", text)
        await broker.durability.answer_waiting(_SENDS_S)
    await server.close()
    # Last, so that slaves get everything: the next master may be one of them.
    await broker.replication.feed.drain(_SLAVES_S)
    await give_tables(broker, peers, _TABLES_S)
    broker.replication.close()


async def reject_pulls(server: Server[Broker]) -> None:
    """Reject parked pulls and those that still come, until no more come."""
    broker = server.endpoint.context
    broker.state = BrokerState.DRAINING
    broker.locks.release_waiters()  # their clients pull again, and are rejected
    for pull in broker.arrivals.take_all():
        pull.request.answer(reject(broker))
    for _ in range(_MAX_ROUNDS):
        before = broker.rejected_pulls
        if server.connections:
            await asyncio.sleep(_QUIET_S)
        if broker.rejected_pulls == before:
            break


async def _save_subscriptions(broker: Broker) -> None:
    until_ms = broker.clock() + int(broker.config.client_timeout_s * 1000)
    table = last_subscriptions(broker.consumers, until_ms)
    try:
        await broker.workers.run(broker.tables.save_last_subscriptions, table)
    except (OSError, DiskFull) as error:  # some clients just wait after the next start
        broker.log.warning("subscriptions are not kept: %s", error)


async def close(broker: Broker) -> None:
    """Make everything durable and close the files. A failed store is left as it is for recovery."""
    if not broker.store.has_failed:
        await broker.durability.flush()
        if broker.replication.is_master:
            await delivery.close(broker)
        elif broker.table_following is not None:
            await broker.table_following.close()
        await broker.saving.save()
        await broker.tables.offsets.save(broker.offsets, broker.workers, broker.slices)
        if broker.replication.is_master:
            broker.replication.note_heard(broker.clock())
            broker.replication.known_slaves.master_stopped(broker.store.max_log_offset)
    broker.dead_letters.report_rest()
    broker.delivery.close()
    broker.tables.offsets.close()
    broker.store.close()
    broker.replication.shown.close()
    broker.state = BrokerState.STOPPED
