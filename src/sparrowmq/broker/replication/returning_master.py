"""A master that starts asks its slaves whether they have messages that it lost.

With asynchronous flush a power cut takes the end of the master's log, and a slave may have
acknowledged it, so that the producer got SEND_OK. So before anything is appended, the master copies
back what a slave with the same history has beyond the master's own log.

```
no slaves known                          ─▶ complete
a slave is, or follows, another master   ─▶ read-only, as long as it does: there are two masters;
                                            the name servers are left to the other one
enough slaves answer                     ─▶ copy back from the longest; complete
too few answer, replication is async     ─▶ serve: no acknowledgement promised their copies
too few answer, replication is sync      ─▶ read-only, until they answer or the loss is accepted
```

After a graceful shutdown the log had everything, and one slave fewer is enough, but at least one:
since then another broker may have been the master, and what it acknowledged is on slaves, too. It
may itself be one of those that this broker remembers, and not run now.

Groups kept consuming at a slave while the master was away, and a power cut may have lost commits
that the slave had copied. So the master also asks its slaves for their progress; `tables.py` merges
it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from sparrowmq.broker.config import MASTER_ID, BrokerConfig
from sparrowmq.broker.consumer_offsets import changes_in
from sparrowmq.broker.replication.claims import LogClaim, diverged_at
from sparrowmq.broker.replication.follower import Follower, MustStartAnew, NotFollowing
from sparrowmq.broker.replication.known_slaves import KnownSlaves
from sparrowmq.broker.replication.log_description import LogDescription, describe_log
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.replication.table_state import StateUnreadable, TableQuestion, decode_state
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.nameserver import GetClusterInfo
from sparrowmq.protocol.headers.replication import CopyTables, CopyTablesAnswer, DescribeLog
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.route import ClusterInfo
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.store import Store

_ASK_S = 2.0
_FIND_S = 3.0
_PROGRESS_S = (2.0, 4.0, 8.0)
"""How long each question for progress may take."""
_AGAIN_S = 0.5


class SlavesHaveMessages(Exception):
    """This master has an empty log and remembers no slave, and a slave of its name has messages."""


@dataclass(frozen=True, slots=True)
class ReturnOutcome:
    """What a starting master may do."""

    may_serve: bool
    nothing_is_lost: bool
    """Whether everything that was acknowledged is in the log."""
    reason: str = ""
    """Why it may not serve, and what to do."""
    has_rival: bool = False
    """Whether it may not serve because another broker is the master of its name."""
    confirmed: int | None = None
    """Enough slaves have the log up to there; None if there is no reason to ask for that."""
    progress: tuple[OffsetChange, ...] = ()
    """What its slaves know about the progress of groups."""


async def check_new_master(
    config: BrokerConfig, store: Store, known: KnownSlaves, peers: Peers, port: int
) -> None:
    """Raise SlavesHaveMessages for a master whose directory was lost or replaced.

    It would serve an empty log while its slave has everything. It lacks more than the log: topics
    and groups, too, are at the slave, which therefore has to become the master.
    """
    is_new = store.max_log_offset == store.min_log_offset and not known.slaves
    if not is_new or config.accept_loss == config.broker_name:
        return
    addresses: dict[str, None] = {}
    async for brokers in brokers_of_name(config, peers):
        addresses |= {at: None for broker_id, at in brokers.items() if broker_id != MASTER_ID}
    addresses.pop(config.address(port), None)
    answers = await asyncio.gather(*(_describe(at, DescribeLog(), peers) for at in addresses))
    for answer in answers:
        claim = None if answer is None else answer.claim
        is_copy = claim is not None and claim.is_copy_of(config.cluster_name, config.broker_name)
        if claim is not None and is_copy and not claim.is_empty:
            name = config.broker_name
            raise SlavesHaveMessages(
                f"the log in {config.data_dir} is empty, and {claim.address}, slave"
                f" {claim.broker_id} of {name}, has {claim.end - claim.begin:,} bytes: make it the"
                f" master (sparrowmq broker promote {name} --accept-loss {name}) and start this"
                " broker as a slave (--broker-id 1). To start with an empty log all the same, add"
                f" --accept-loss {name}"
            )


async def brokers_of_name(config: BrokerConfig, peers: Peers) -> AsyncIterator[Mapping[int, str]]:
    """The brokers of this broker's name by id, as each name server in turn knows them."""
    for server in config.name_servers:
        try:
            answer = await peers.call(server, GetClusterInfo(), timeout_s=_FIND_S)
            if answer.code != ResponseCode.SUCCESS:
                continue
            known = ClusterInfo.from_json(answer.body).broker_addr_table.get(config.broker_name)
        except (NetError, ProtocolError):
            continue
        if known is not None:
            yield known.broker_addrs


async def is_kept_by_waiting_master(config: BrokerConfig, peers: Peers) -> bool:
    """Whether the registered master of this name is one that takes no messages yet."""
    addresses = {at async for each in brokers_of_name(config, peers) if (at := each.get(MASTER_ID))}
    answers = [await _describe(address, DescribeLog(), peers) for address in addresses]
    return any(answer is not None and answer.is_waiting for answer in answers)


async def recover_from_slaves(
    config: BrokerConfig,
    store: Store,
    known: KnownSlaves,
    peers: Peers,
    *,
    port: int,
    log: logging.Logger,
) -> ReturnOutcome:
    """Copy back what slaves have beyond this master's log."""
    if not known.slaves:
        return ReturnOutcome(may_serve=True, nothing_is_lost=False)
    own_address = config.address(port)
    question = DescribeLog(returning_master=own_address)
    found, silent = await _ask(config, known, peers, own_address, question)
    for description in found:
        if rival := _rival(description, own_address):
            text = (
                f"there are two masters of {config.broker_name}: {rival}. This one, which started"
                " later, takes no messages; stop one of them, or start this one as a slave"
                " (--broker-id 1)"
            )
            return ReturnOutcome(
                may_serve=False, nothing_is_lost=False, reason=text, has_rival=True
            )
    outcome = await _recover_log(config, store, known, peers, found, silent, port=port, log=log)
    if not outcome.may_serve:
        return outcome
    copies = _copies(found, describe_log(config, store, port).claim)
    addresses = [copy.address for copy in copies]
    return replace(outcome, progress=tuple(await _progress(addresses, peers, log)))


def _copies(found: Iterable[LogDescription], own: LogClaim) -> list[LogClaim]:
    """The slaves whose log is the beginning of this one, or all of it."""
    claims = [description.claim for description in found]
    return [each for each in claims if each.end <= own.end and diverged_at(own, each) is None]


def _confirmed(config: BrokerConfig, own: LogClaim, copies: Iterable[LogClaim]) -> int | None:
    """How much of the log enough slaves have; None if what follows was given up long ago.

    Where fewer than that have answered, every acknowledgement was also one of theirs.
    """
    ends = sorted((copy.end for copy in copies), reverse=True)[: config.copies_wanted - 1]
    is_close = bool(ends) and own.end - ends[-1] <= config.max_slave_gap_bytes
    return ends[-1] if is_close else None


async def _recover_log(
    config: BrokerConfig,
    store: Store,
    known: KnownSlaves,
    peers: Peers,
    found: list[LogDescription],
    silent: list[str],
    *,
    port: int,
    log: logging.Logger,
) -> ReturnOutcome:
    stopped_in_order = known.complete_to == store.max_log_offset
    copied = 0
    for description in sorted(found, key=lambda each: each.claim.end, reverse=True):
        copied += await _copy_back(config, store, peers, description, port=port, log=log)
    needed = known.reachable_needed(config.copies_wanted)
    if stopped_in_order:
        needed = min(needed, max(1, needed - 1))
    if copied >= needed:
        if stopped_in_order:
            return ReturnOutcome(may_serve=True, nothing_is_lost=True)
        if config.copies_wanted == 1:
            return ReturnOutcome(may_serve=True, nothing_is_lost=False)
        own = describe_log(config, store, port).claim
        confirmed = _confirmed(config, own, _copies(found, own))
        return ReturnOutcome(may_serve=True, nothing_is_lost=True, confirmed=confirmed)
    if config.accept_loss == config.broker_name:
        log.error(
            "starting although %s did not answer: messages that were acknowledged may be lost",
            ", ".join(silent),
        )
        return ReturnOutcome(may_serve=True, nothing_is_lost=False)
    names = ", ".join(silent)
    why = f"this broker stopped without saving everything, and {names} may have messages it lost"
    if stopped_in_order:
        why = f"{names} may have been the master meanwhile, or have messages of another one"
    return ReturnOutcome(
        may_serve=False,
        nothing_is_lost=False,
        reason=(
            f"{why}: {copied} of {needed} slaves gave theirs. It takes no messages until they do."
            f" To go on without them, start it with --accept-loss {config.broker_name}"
        ),
    )


async def find_rival(
    config: BrokerConfig, known: KnownSlaves, peers: Peers, own_address: str
) -> str:
    """Describe another master of this name that this one's slaves know; empty without one."""
    found, _ = await _ask(config, known, peers, own_address, DescribeLog())
    return next(filter(None, (_rival(each, own_address) for each in found)), "")


def _rival(slave: LogDescription, own_address: str) -> str:
    """Describe another master of this name that a slave knows; empty if there is none."""
    claim = slave.claim
    if claim.broker_id == MASTER_ID and not slave.is_waiting:
        return f"{claim.address}, which was a slave of this broker, is a master now"
    if slave.follows not in ("", own_address):
        return f"{claim.address}, a slave of this broker, follows {slave.follows}"
    return ""


async def _ask(
    config: BrokerConfig,
    known: KnownSlaves,
    peers: Peers,
    own_address: str,
    question: DescribeLog,
) -> tuple[list[LogDescription], list[str]]:
    """What the slaves say about their logs, and the addresses of those that did not answer.

    An answer counts for the slave that gives it: another broker may have a slave's address by now,
    even another slave, if the system chooses the ports.
    """
    addresses = [each for each in dict.fromkeys(known.addresses.values()) if each != own_address]
    answers = await asyncio.gather(*(_describe(address, question, peers) for address in addresses))
    found = {
        answer.claim.broker_id: answer
        for answer in answers
        if answer is not None
        and answer.claim.is_copy_of(config.cluster_name, config.broker_name)
        and answer.claim.broker_id in (MASTER_ID, *known.slaves)
    }
    silent = [address for slave_id, address in known.addresses.items() if slave_id not in found]
    return list(found.values()), silent


async def _describe(address: str, question: DescribeLog, peers: Peers) -> LogDescription | None:
    try:
        response = await peers.call(address, question, timeout_s=_ASK_S)
        if response.code != ResponseCode.SUCCESS:
            return None
        return LogDescription.from_json(response.body)
    except (NetError, ProtocolError):
        return None


async def _copy_back(
    config: BrokerConfig,
    store: Store,
    peers: Peers,
    slave: LogDescription,
    *,
    port: int,
    log: logging.Logger,
) -> bool:
    """Copy what the slave has beyond this log. False if that failed: the slave does not count."""
    own, end = describe_log(config, store, port).claim, slave.claim.end
    if end <= own.end:
        return True
    diverged = diverged_at(own, slave.claim)
    if diverged is not None:
        log.warning(
            "%s has another history from log offset %d on: nothing is copied back from it",
            slave.claim.address,
            diverged,
        )
        return True
    log.warning(
        "%s has %d bytes more than this master, which lost them: copying them back",
        slave.claim.address,
        end - own.end,
    )
    follower = Follower(config, store, peers, port=port, log=log)
    try:
        await follower.copy_from(slave.claim.address, until=end)
    except (
        *(NetError, NotFollowing, MustStartAnew, ProtocolError, OSError, TimeoutError),
        *(DiskFull, StoreStopped, ValueError),
    ) as error:
        log.error("copying back from %s ended: %s", slave.claim.address, error)
        return False
    return True


async def _progress(
    addresses: Iterable[str], peers: Peers, log: logging.Logger
) -> list[OffsetChange]:
    """The progress of groups as slaves know it. One that is silent costs redeliveries only."""
    progress: list[OffsetChange] = []
    for address in addresses:
        try:
            answer = await _ask_for_progress(address, peers)
            if answer.code != ResponseCode.SUCCESS:
                raise StateUnreadable(answer.remark)
            is_deflated = answer.header(CopyTablesAnswer).is_deflated
            state = decode_state(answer.body, is_deflated=is_deflated)
        except (NetError, ProtocolError, StateUnreadable) as error:
            log.warning("slave %s did not return the progress committed there: %s", address, error)
            continue
        if isinstance(state.progress, ConsumerOffsetTable):
            progress += changes_in(state.progress)
    return progress


async def _ask_for_progress(address: str, peers: Peers) -> Response:
    """Ask a slave that has just described its log, so it is there: a lost answer is asked for
    again, and a table may be so large that it takes longer. Raises NetError."""
    question = msgspec.json.encode(TableQuestion(only_progress=True))
    for timeout_s in _PROGRESS_S[:-1]:
        with suppress(NetError):
            return await peers.call(address, CopyTables(), question, timeout_s=timeout_s)
        await asyncio.sleep(_AGAIN_S)
    return await peers.call(address, CopyTables(), question, timeout_s=_PROGRESS_S[-1])
