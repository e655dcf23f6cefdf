"""A stopping master gives its slaves its last tables, so that one of them can take its place.

Slaves ask for tables three times a second, and what changed after the last request would be missing
on a slave that is promoted while its master stays away. Once the last client connection is closed,
nothing changes any more; then each slave that has the whole log gets whole tables. This is best
effort: a slow slave keeps what it has, and the master stops.
"""

import asyncio
from contextlib import suppress

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication.table_copy import take_state
from sparrowmq.broker.replication.table_state import TableQuestion, encode_state
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.replication import GiveTables


async def give_tables(broker: Broker, peers: Peers, longest_s: float) -> None:
    """Return when all slaves with the whole log have the tables, or after `longest_s`."""
    slaves = _equal_slaves(broker)
    if not slaves:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            state = await take_state(broker, TableQuestion())
            body, is_deflated = await broker.workers.run(encode_state, state)
            header = GiveTables(master_address=broker.address, is_deflated=is_deflated)
            async with asyncio.TaskGroup() as tasks:
                for address in slaves:
                    tasks.create_task(_give(broker, peers, address, header, body, longest_s))


def _equal_slaves(broker: Broker) -> list[str]:
    """Addresses of slaves whose log ends where this master's does. Apache's slaves have no address
    here: they request tables and cannot be sent any."""
    replication = broker.replication
    if not replication.is_master or broker.is_handing_over:
        return []
    end, known = broker.store.max_log_offset, replication.known_slaves.addresses
    return [
        known[slave_id]
        for slave_id, link in replication.feed.links.items()
        if slave_id in known and link.acknowledged == end
    ]


async def _give(
    broker: Broker, peers: Peers, address: str, header: GiveTables, body: bytes, longest_s: float
) -> None:
    try:
        answer = await peers.call(address, header, body, timeout_s=longest_s)
    except NetError as error:
        # The slave may be stopping as well.
        broker.log.info("slave %s may lack the last changes of tables: %s", address, error)
        return
    if answer.code != ResponseCode.SUCCESS:
        broker.log.warning(
            "slave %s refused the final copy of the tables: %s", address, answer.remark
        )
