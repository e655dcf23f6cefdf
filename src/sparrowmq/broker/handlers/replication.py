"""Brokers of one name compare their logs and copy tables; operators look at how far slaves are."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication.claims import Follow, LogClaim, Refuse, StartAnew, judge
from sparrowmq.broker.replication.replication import Role
from sparrowmq.broker.replication.status import ha_status
from sparrowmq.broker.replication.table_copy import merge_from_slave, take_state
from sparrowmq.broker.replication.table_state import (
    StateUnreadable,
    decode_question,
    encode_state,
)
from sparrowmq.disk.errors import DiskFull
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
    ResetMasterFlushOffset,
)

routes: Routes[Broker] = Routes()


@routes.on(DescribeLog)
def describe_log(broker: Broker, request: Request[DescribeLog]) -> Reply:
    """What this broker's log is: a master that comes back asks its slaves."""
    follower = broker.replication.follower
    if follower is not None and follower.master_address == request.header.returning_master:
        follower.start_over()
    return Reply(body=broker.replication.describe().to_json())


@routes.on(FollowMaster)
async def follow_master(broker: Broker, request: Request[FollowMaster]) -> Reply:
    """Judge a broker that wants to copy this one's log; a token for one that may."""
    replication = broker.replication
    if replication.is_master and not replication.admits_slaves:
        text = "this master is starting, and has not asked the name servers for its name yet"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text)
    try:
        claim = LogClaim.from_json(request.body)
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    if replication.role is Role.WAITING:
        # A slave that it waits for may be back at another address: it is asked there from now on.
        if claim.broker_id in replication.known_slaves.addresses:
            _remember(broker, claim)
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, replication.reason)
    own = replication.describe()
    # The follower's end may lie far back in the log, where reading it waits for the device.
    verdict = await broker.workers.run(judge, own.claim, claim, broker.store.read_log)
    match verdict:
        case Refuse(reason):
            broker.log.warning("refused %s as a follower: %s", claim.address, reason)
            raise RequestRefused(ResponseCode.NO_PERMISSION, reason)
        case StartAnew(reason):
            return Reply(FollowAnswer(must_start_anew=True), remark=reason)
        case Follow(start):
            _remember(broker, claim)
            token = replication.feed.admit(claim, start).hex()
            header = FollowAnswer(token=token, ha_address=replication.ha_address, start=start)
            return Reply(header, body=own.to_json())


def _remember(broker: Broker, slave: LogClaim) -> None:
    """A slave counts only when it would be remembered after a power cut.

    Saved on the loop, although that syncs: it happens once per slave, and two that come together
    must neither write the file at once nor count while the other's save runs.
    """
    replication = broker.replication
    known = replication.known_slaves
    before = dict(known.addresses)
    if replication.role is Role.SLAVE or not known.remember(slave.broker_id, slave.address):
        return
    try:
        known.save()
    except (DiskFull, OSError) as error:
        known.addresses = before
        text = f"the slave cannot be remembered: {error}"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error


@routes.on(CopyTables)
async def copy_tables(broker: Broker, request: Request[CopyTables]) -> Reply:
    """What a slave lacks of this broker's tables; what was committed at the slave counts here."""
    try:
        question = decode_question(request.body)
    except StateUnreadable as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    if broker.replication.is_master:
        merge_from_slave(broker, question.progress)
    state = take_state(broker, question)
    body, is_deflated = await broker.workers.run(encode_state, state)
    return Reply(CopyTablesAnswer(is_deflated=is_deflated), body)


@routes.on(GetHaStatus)
def get_ha_status(broker: Broker, request: Request[GetHaStatus]) -> Reply:
    """What `mqadmin haStatus` prints: of a master its slaves, of a slave itself."""
    status = ha_status(broker.replication, broker.replication_figures, broker.clock())
    return Reply(body=status.to_json())


@routes.on(ResetMasterFlushOffset)
def reset_master_flush_offset(broker: Broker, request: Request[ResetMasterFlushOffset]) -> Reply:
    """Note it on a slave, and answer success without effect on a master, as Apache's broker does.

    Nothing here depends on the value: a slave learns from its master's bytes what it may serve.
    """
    if not broker.replication.is_master:
        broker.replication_figures.master_flushed = request.header.master_flush_offset
    return Reply()
