"""Asks a master to describe its log, for examining a slave's store without its broker."""

import asyncio
import logging
from collections.abc import Sequence

from sparrowmq.broker.config import MASTER_ID
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.nameserver import GetClusterInfo
from sparrowmq.protocol.headers.replication import DescribeLog
from sparrowmq.protocol.route import ClusterInfo

_ANSWER_S = 5.0


class NoMaster(Exception):
    """The master was not found or does not describe its log; the text says why."""


def log_of_master(
    master: str | None, name_servers: Sequence[str], broker_name: str
) -> LogDescription:
    """The log of the broker at `master`, or of the master that name servers know by its name.

    Raises NoMaster.
    """
    return asyncio.run(_ask(master, name_servers, broker_name))


async def _ask(master: str | None, name_servers: Sequence[str], broker_name: str) -> LogDescription:
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(tasks, log=logging.getLogger("sparrowmq.cli"))
        try:
            found: LogDescription | NoMaster = await _describe(
                peers, master or await _find(peers, name_servers, broker_name)
            )
        except NoMaster as error:
            found = error  # raised below: the task group would wrap it in an exception group
        finally:
            await peers.close()
    if isinstance(found, NoMaster):
        raise found
    return found


async def _find(peers: Peers, name_servers: Sequence[str], broker_name: str) -> str:
    failures = []
    for server in name_servers:
        try:
            answer = await peers.call(server, GetClusterInfo(), timeout_s=_ANSWER_S)
            known = ClusterInfo.from_json(answer.body).broker_addr_table.get(broker_name)
        except (NetError, ProtocolError) as error:
            failures.append(f"{server}: {error}")
            continue
        if known is not None and MASTER_ID in known.broker_addrs:
            return known.broker_addrs[MASTER_ID]
        failures.append(f"{server} knows no master of {broker_name}")
    raise NoMaster(f"{'; '.join(failures)}. Name another broker with --broker-name, or --master")


async def _describe(peers: Peers, address: str) -> LogDescription:
    try:
        answer = await peers.call(address, DescribeLog(), timeout_s=_ANSWER_S)
        if answer.code != ResponseCode.SUCCESS:
            raise NoMaster(f"{address} does not describe its log: {answer.remark}")
        found = LogDescription.from_json(answer.body)
    except (NetError, ProtocolError) as error:
        raise NoMaster(f"{address} does not describe its log: {error}") from error
    if found.claim.broker_id != MASTER_ID:
        raise NoMaster(f"{address} is slave {found.claim.broker_id}, not a master")
    return found
