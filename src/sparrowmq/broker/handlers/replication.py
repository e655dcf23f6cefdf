"""Requests with which brokers of one name compare logs and copy tables, and with which operators
list and retire slaves and change roles."""

from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication.claims import (
    Follow,
    LogClaim,
    Refuse,
    StartAnew,
    diverged_at,
    judge,
)
from sparrowmq.broker.replication.follower import NotFollowing
from sparrowmq.broker.replication.log_description import comparable_bytes
from sparrowmq.broker.replication.replication import Replication, Role
from sparrowmq.broker.replication.role_change import CannotChange, Inheritance
from sparrowmq.broker.replication.slave_link import SILENCE_S
from sparrowmq.broker.replication.status import ha_status, slave_list
from sparrowmq.broker.replication.table_copy import merge_from_slave, take_state
from sparrowmq.broker.replication.table_following import NotCopied
from sparrowmq.broker.replication.table_state import (
    StateUnreadable,
    decode_question,
    decode_state,
    encode_state,
)
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.replication import (
    CopyTables,
    CopyTablesAnswer,
    DescribeLog,
    FollowAnswer,
    FollowMaster,
    GetHaStatus,
    GiveTables,
    HandedOver,
    HandOver,
    ListSlaves,
    ReadLog,
    ResetMasterFlushOffset,
    RetireSlave,
    TakenOver,
    TakeOver,
)
from sparrowmq.store.errors import StoreError

routes: Routes[Broker] = Routes()
_READ_AT_ONCE = 1024 * 1024


@routes.on(DescribeLog)
def describe_log(broker: Broker, request: Request[DescribeLog]) -> Reply:
    """Describe this broker's log: a master that comes back asks its slaves for this."""
    follower = broker.replication.follower
    if follower is not None and follower.master_address == request.header.returning_master:
        follower.start_over()
    return Reply(body=broker.replication.describe().to_json())


@routes.on(FollowMaster)
async def follow_master(broker: Broker, request: Request[FollowMaster]) -> Reply:
    """Judge a broker that wants to copy this one's log; one that may gets a token."""
    replication = broker.replication
    if replication.is_master and not replication.admits_slaves:
        text = "this master is starting, and has not asked the name servers for its name yet"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text)
    try:
        claim = LogClaim.from_json(request.body)
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    _check_id_is_free(replication, claim)
    own = replication.describe()
    if _may_have_lost_messages(own.claim, claim, replication):
        # It may be back at another address: this master asks it there at its next start.
        _remember(broker, claim)
    if replication.role is Role.WAITING:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, replication.reason)
    # The follower's end may lie far back in the log, where reading it waits for the device.
    read = partial(comparable_bytes, broker.store)
    verdict = await broker.workers.run(judge, own.claim, claim, read)
    match verdict:
        case Refuse(reason):
            replication.feed.report_refusal(claim.address, reason)
            raise RequestRefused(ResponseCode.NO_PERMISSION, reason)
        case StartAnew(reason):
            return Reply(FollowAnswer(must_start_anew=True), remark=reason)
        case Follow(start):
            _remember(broker, claim)
            token = replication.feed.admit(claim, start).hex()
            header = FollowAnswer(token=token, ha_address=replication.ha_address, start=start)
            return Reply(header, body=own.to_json())


@routes.on(ReadLog)
async def read_log(broker: Broker, request: Request[ReadLog]) -> Reply:
    """Bytes of the log as they are, for a slave that has lost them to damage."""
    store, start = broker.store, request.header.start
    if not store.min_log_offset <= start < store.max_log_offset:
        text = (
            f"log offset {start:,} is not in this log, which has"
            f" {store.min_log_offset:,} to {store.max_log_offset:,}"
        )
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    size = max(0, min(request.header.size, _READ_AT_ONCE))
    return Reply(body=await broker.workers.run(store.read_log, start, size))


def _check_id_is_free(replication: Replication, claim: LogClaim) -> None:
    """Raise RequestRefused for a slave with the id of one that already follows: the two would push
    each other out again and again."""
    address = replication.known_slaves.addresses.get(claim.broker_id, claim.address)
    if claim.broker_id in replication.feed.links and address != claim.address:
        text = (
            f"slave {claim.broker_id} follows from {address}, and {claim.address} has the same id:"
            " give one of them another --broker-id; a slave that has moved is let in when its old"
            f" connection has been silent for {SILENCE_S:.0f} s"
        )
        replication.feed.report_refusal(claim.address, text)
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text)


def _may_have_lost_messages(own: LogClaim, claim: LogClaim, replication: Replication) -> bool:
    """Whether this slave is one that the master remembers, or has more messages, in a log that
    continues the master's own: asked at the next start, it gives them back.

    A broker that has the same id but another history must not take the slave's place: the master
    would ask the wrong one for what it lost.
    """
    has_more = claim.end > own.end
    return (
        (claim.broker_id in replication.known_slaves.slaves or has_more)
        and claim.file_size == own.file_size
        and claim.is_copy_of(own.cluster, own.broker_name)
        and diverged_at(own, claim) is None
    )


def _remember(broker: Broker, slave: LogClaim) -> None:
    """Remember a slave durably: it counts only once it would be remembered after a power cut.

    The save runs on the loop although it syncs: it happens once per slave and address, and two
    slaves that come together must neither write the file at the same time nor count while the
    other's save runs.
    """
    if broker.replication.role is Role.SLAVE:
        return
    try:
        broker.replication.known_slaves.remember(slave.broker_id, slave.address)
    except (DiskFull, OSError) as error:
        text = f"the slave cannot be remembered: {error}"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error


@routes.on(ListSlaves)
def list_slaves(broker: Broker, request: Request[ListSlaves]) -> Reply:
    """The slaves that a master remembers, including those that are away."""
    if broker.replication.role is Role.SLAVE:
        raise RequestRefused(ResponseCode.NO_PERMISSION, _NOT_A_MASTER)
    return Reply(body=slave_list(broker.replication, broker.clock()).to_json())


@routes.on(RetireSlave)
async def retire_slave(broker: Broker, request: Request[RetireSlave]) -> Reply:
    """Forget a slave that is gone for good: no log file is kept for it, and it is not asked again.

    It may be the only other broker that has what this one has not synced yet, so this one syncs
    first.
    """
    slave_id = request.header.broker_id
    _check_may_retire(broker.replication, slave_id)
    try:
        await broker.durability.make_durable()
        _check_may_retire(broker.replication, slave_id)
        known = broker.replication.known_slaves
        address = known.slaves[slave_id].address
        known.forget(slave_id)
    except (DiskFull, StoreError, OSError) as error:
        text = f"the slave is still remembered: {error}"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error
    # It may have said hello but not connected yet: then it must say hello again.
    broker.replication.feed.withdraw(slave_id)
    audit(request, "retired slave %d, last at %s", slave_id, address)
    return Reply()


_NOT_A_MASTER = "this broker is a slave, and remembers none; ask its master"


def _check_may_retire(replication: Replication, slave_id: int) -> None:
    if replication.role is Role.SLAVE:
        raise RequestRefused(ResponseCode.NO_PERMISSION, _NOT_A_MASTER)
    known = replication.known_slaves.slaves
    if slave_id not in known:
        ids = ", ".join(map(str, sorted(known))) or "none"
        text = f"this master remembers no slave with the id {slave_id}; it remembers: {ids}"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    if slave_id in replication.feed.links:
        text = f"slave {slave_id} at {known[slave_id].address} follows this master; stop it first"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    if replication.role is Role.WAITING:
        text = f"slave {slave_id} may have messages that this master lost: {replication.reason}"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)


@routes.on(CopyTables)
async def copy_tables(broker: Broker, request: Request[CopyTables]) -> Reply:
    """Give a slave what it lacks of this broker's tables, and merge what was committed at it."""
    try:
        question = decode_question(request.body)
    except StateUnreadable as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    if broker.replication.is_master:
        merge_from_slave(broker, question.progress)
    state = await take_state(broker, question)
    body, is_deflated = await broker.workers.run(encode_state, state)
    return Reply(CopyTablesAnswer(is_deflated=is_deflated), body)


@routes.on(GiveTables)
async def give_tables(broker: Broker, request: Request[GiveTables]) -> Reply:
    """On a slave: its master is stopping, and these are its last tables."""
    following = broker.table_following
    if following is None:
        text = "this broker is not a slave, and takes no tables"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    header = request.header
    decode = partial(decode_state, request.body, is_deflated=header.is_deflated)
    try:
        state = await broker.workers.run(decode) if header.is_deflated else decode()
        if not await following.take(state, header.master_address):
            raise NotCopied("these tables belong to another log than this one")
    except StateUnreadable as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except (NotCopied, NotFollowing, DiskFull) as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    return Reply()


@routes.on(GetHaStatus)
def get_ha_status(broker: Broker, request: Request[GetHaStatus]) -> Reply:
    """What `mqadmin haStatus` prints: a master's slaves, or a slave itself."""
    status = ha_status(broker.replication, broker.replication_figures, broker.clock())
    return Reply(body=status.to_json())


@routes.on(ResetMasterFlushOffset)
def reset_master_flush_offset(broker: Broker, request: Request[ResetMasterFlushOffset]) -> Reply:
    """Note the value on a slave; on a master succeed without effect, as Apache's broker does.

    Nothing here depends on the value: a slave learns from its master's bytes what it may serve.
    """
    if not broker.replication.is_master:
        broker.replication_figures.master_flushed = request.header.master_flush_offset
    return Reply()


# ---- changes of roles


@routes.on(HandOver)
async def hand_over(broker: Broker, request: Request[HandOver]) -> Reply:
    """On the master: hand over; answered when the slave has accepted."""
    header, change = request.header, broker.replication.role_change
    slave_id = header.slave_id if header.slave_id >= 0 else None
    try:
        successor = change.successor(slave_id)
        await change.hear_from(successor)
        if not header.dry_run:
            audit(request, "hands over to slave %d", successor.slave_id)
            await change.hand_over(successor)
    except CannotChange as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    return Reply(
        HandedOver(
            new_master=successor.address,
            slave_id=successor.slave_id,
            behind_bytes=successor.behind_bytes,
        )
    )


@routes.on(TakeOver)
async def take_over(broker: Broker, request: Request[TakeOver]) -> Reply:
    """On a slave: take over, at the request of its last master or, without one, of an operator."""
    header, change = request.header, broker.replication.role_change
    answer = TakenOver(slave_id=broker.config.broker_id, log_end=broker.store.max_log_offset)
    if not header.dry_run:
        audit(request, "takes over from %s", header.master_address or "no master")
    try:
        if header.master_address:
            inheritance = Inheritance.from_json(request.body)
            await change.take_over(header.master_address, header.log_end, inheritance)
        else:
            change.check_loss(header.accept_loss)
            await change.check_no_master()
            if not header.dry_run:
                await change.take_over_from_none()
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except CannotChange as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    return Reply(answer)
