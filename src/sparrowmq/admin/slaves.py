"""Slaves that masters remember, including those that are away; retiring one that is gone for good.

Only SparrowMQ's masters remember their slaves: others are in the `errors` of a listing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sparrowmq.admin.cluster_calls import ClusterCalls, answered
from sparrowmq.admin.errors import AdminError, NoBrokerAnswers, NotFound, shown
from sparrowmq.admin.values import Listing, time_of
from sparrowmq.protocol.ha_status import SlaveList
from sparrowmq.protocol.headers.replication import ListSlaves, RetireSlave


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveInfo:
    """A slave for which its master keeps log files, and which it asks after a power cut."""

    broker: str
    broker_id: int
    address: str
    """Where it was when it last followed."""
    follows: bool
    """Whether it is copying from its master now."""
    acknowledged: int
    """The log offset up to which it had everything when the master last heard from it; 0 if the
    master was killed since and has not heard from it again."""
    behind_bytes: int
    """Bytes from `acknowledged` to the end of its master's log."""
    heard: datetime | None
    """When the master last heard from it, by the master's clock; None if that is not known."""


async def slaves(cluster: ClusterCalls, brokers: Sequence[str] = ()) -> Listing[SlaveInfo]:
    """The slaves of the named masters, or of all. Raises NotFound, NoBrokerAnswers."""
    masters, without = await cluster.masters_and_missing(brokers=brokers)
    if not masters:
        raise NoBrokerAnswers(without)
    answers = await cluster.ask_each(
        masters, lambda name, address: slaves_of(cluster, name, address)
    )
    found = (slave for each in answers.by_broker.values() for slave in each)
    return Listing(tuple(found), (*answers.errors, *without))


async def retire_slave(
    cluster: ClusterCalls, broker: str, broker_id: int, *, dry_run: bool
) -> SlaveInfo:
    """Make a master forget a slave. Returns what the master knew about it. Raises NotFound, and
    AdminError if the slave is following."""
    address = (await cluster.masters(brokers=[broker]))[broker]
    known = {
        each.broker_id: each for each in await answered(lambda: slaves_of(cluster, broker, address))
    }
    slave = known.get(broker_id)
    if slave is None:
        ids = shown(str(each) for each in known)
        raise NotFound("slave", f"{broker_id} of {broker}", f"it remembers: {ids}")
    if slave.follows:
        raise AdminError(
            f"slave {broker_id} of {broker} follows it, from {slave.address}; nothing was changed:"
            " stop the slave first"
        )
    if not dry_run:
        await cluster.call(address, RetireSlave(broker_id=broker_id))
    return slave


async def slaves_of(cluster: ClusterCalls, name: str, address: str) -> list[SlaveInfo]:
    """The slaves that one master remembers."""
    table = SlaveList.from_json((await cluster.call(address, ListSlaves())).body)
    return [
        SlaveInfo(
            broker=name,
            broker_id=each.broker_id,
            address=each.address,
            follows=each.follows,
            acknowledged=each.acknowledged,
            behind_bytes=max(0, table.log_end - each.acknowledged),
            heard=time_of(each.heard_ms),
        )
        for each in table.slaves
    ]
