"""Changing which broker of a name is the master.

A master that answers hands over: it stops taking messages, waits until the slave has everything,
and becomes a slave itself; nothing is lost. If it is gone, a slave takes over if the operator
accepts by name that messages may be lost. The brokers decide whether they can (`broker.replication.
role_change`); a dry run asks them the same questions.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.errors import AdminError, BrokerRefusal, NotFound, shown
from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.replication import HandedOver, HandOver, TakenOver, TakeOver
from sparrowmq.protocol.route import MASTER_ID, BrokerData

_LOOK_AGAIN_S = 0.02
_REGISTERED_WITHIN_S = 10.0
"""A new master usually registers within a second; it may have to recover its store first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """A slave that becomes the master of its name, or would in a dry run."""

    broker: str
    new_master: str
    """host:port"""
    slave_id: int
    """The slave's id before the change; the old master gets it."""
    old_master: str | None
    """host:port; None if no master answered."""
    behind_bytes: int | None
    """What the slave lacked when the change began, and has received since; None without an old
    master."""
    log_end: int | None
    """Without an old master: where the slave's log ends. What the old master stored after that is
    lost."""


async def hand_over(
    cluster: ClusterCalls, name: str, slave_id: int | None, *, dry_run: bool
) -> RoleChange:
    """Make a master hand its role to a slave.

    Raises NotFound, and AdminError if the roles stay as they are.
    """
    data = await _brokers_of(cluster, name)
    master = data.broker_addrs.get(MASTER_ID)
    if master is None:
        raise AdminError(
            f"broker {name} has no master that could hand over; to make a slave the master"
            f" although messages may be lost: sparrowmq broker promote {name} --accept-loss {name}"
        )
    header = HandOver(slave_id=-1 if slave_id is None else slave_id, dry_run=dry_run)
    answer = (await _asked(cluster, master, header, dry_run=dry_run)).header(HandedOver)
    if not dry_run:
        await _until_registered(cluster, name, answer.new_master)
    return RoleChange(
        broker=name,
        new_master=answer.new_master,
        slave_id=answer.slave_id,
        old_master=master,
        behind_bytes=answer.behind_bytes,
        log_end=None,
    )


async def promote(
    cluster: ClusterCalls,
    name: str,
    slave_id: int | None,
    *,
    accept_loss: str | None,
    address: str | None,
    dry_run: bool,
) -> RoleChange:
    """Make a slave the master, through the present master or, if that is gone, without it.

    Raises NotFound, AdminError if the roles stay as they are, and ValueError if the loss is
    accepted for another broker.
    """
    if accept_loss not in (None, name):
        raise ValueError(
            f"the loss is accepted for {accept_loss!r}, and the broker is {name!r}; nothing was"
            f" changed: if it is the right one, add --accept-loss {name}"
        )
    if address is None:
        data = await _brokers_of(cluster, name)
        if accept_loss is None or await _answers(cluster, data.broker_addrs.get(MASTER_ID)):
            return await hand_over(cluster, name, slave_id, dry_run=dry_run)
        slaves = {each: at for each, at in data.broker_addrs.items() if each != MASTER_ID}
        address = await _longest(cluster, name, slaves, slave_id, accept_loss)
    header = TakeOver(accept_loss=accept_loss or "", dry_run=dry_run)
    answer = (await _asked(cluster, address, header, dry_run=dry_run)).header(TakenOver)
    if not dry_run:
        await _until_registered(cluster, name, address)
    return RoleChange(
        broker=name,
        new_master=address,
        slave_id=answer.slave_id,
        old_master=None,
        behind_bytes=None,
        log_end=answer.log_end,
    )


async def _answers(cluster: ClusterCalls, master: str | None) -> bool:
    """Whether the master answers: one that has just gone may still be registered."""
    if master is None:
        return False
    try:
        await cluster.ask(master, HandOver(dry_run=True))
    except AdminError:
        return False
    return True


async def _longest(
    cluster: ClusterCalls,
    name: str,
    slaves: Mapping[int, str],
    slave_id: int | None,
    accept_loss: str,
) -> str:
    """The address of the named slave, or of the one with the longest log. Raises NotFound, and
    AdminError if another slave has messages that the named one lacks."""
    if not slaves or (slave_id is not None and slave_id not in slaves):
        wanted = "any" if slave_id is None else slave_id
        ids = shown(map(str, slaves))
        raise NotFound("slave", f"{wanted} of broker {name}", f"registered are: {ids}")
    question = TakeOver(accept_loss=accept_loss, dry_run=True)
    answers = await at_once([partial(cluster.call, at, question) for at in slaves.values()])
    ends: dict[int, int] = {}
    for each, answer in zip(slaves, answers, strict=True):
        if isinstance(answer, Response):
            ends[each] = answer.header(TakenOver).log_end
        elif slave_id in (None, each) or isinstance(answer, BrokerRefusal):
            raise answer
    chosen = max(ends, key=lambda each: ends[each]) if slave_id is None else slave_id
    longest = max(ends, key=lambda each: ends[each])
    if ends[chosen] < ends[longest]:
        raise AdminError(
            f"slave {longest} of {name} has {ends[longest] - ends[chosen]} bytes that slave"
            f" {chosen} lacks; promote it with --id {longest}, or stop it for good first"
        )
    return slaves[chosen]


async def _asked(
    cluster: ClusterCalls, address: str, header: RequestHeader, *, dry_run: bool
) -> Response:
    """Get a successful answer. Raises AdminError that says whether roles may have changed."""
    try:
        return await cluster.call(address, header)
    except BrokerRefusal as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise AdminError(
            f"{address} is not a broker of SparrowMQ and cannot change its role while it runs;"
            " docs/migration.md says how to replace it"
        ) from error
    except AdminError as error:
        if dry_run:
            raise
        raise AdminError(
            f"{error}; it is not known whether the roles have changed; check the log of {address}"
        ) from error


async def _until_registered(cluster: ClusterCalls, name: str, address: str) -> None:
    """Return when clients find the new master. Raises AdminError."""
    try:
        async with asyncio.timeout(_REGISTERED_WITHIN_S):
            while True:
                data = (await cluster.info()).broker_addr_table.get(name)
                if data is not None and data.broker_addrs.get(MASTER_ID) == address:
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError as error:
        raise AdminError(
            f"{address} was asked to be the master of {name}, and is not registered"
            f" {_REGISTERED_WITHIN_S:g} s later; its log says why, or that of the last master"
        ) from error


async def _brokers_of(cluster: ClusterCalls, name: str) -> BrokerData:
    table = (await cluster.info()).broker_addr_table
    if name not in table:
        raise NotFound(
            "broker",
            name,
            f"registered are: {shown(table)}; slaves that were started without a master are not"
            " registered, name one with --address",
        )
    return table[name]
