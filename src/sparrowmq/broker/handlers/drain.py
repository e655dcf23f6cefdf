"""Requests of operators to drain a broker before it is stopped."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.drain_report import drain_report
from sparrowmq.broker.handlers.table_changes import check_is_master
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.drain import DrainState, ReadElsewhere
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.drain import (
    BeginDrain,
    ClusterLeft,
    EndDrain,
    LeaveCluster,
    LookAtDrain,
)
from sparrowmq.protocol.names import INNER_PRODUCER_GROUP

routes: Routes[Broker] = Routes()

_MOST_GRACE_MS = 600_000


@routes.on(LookAtDrain)
async def look_at_drain(broker: Broker, request: Request[LookAtDrain]) -> Reply:
    """Report what is left, even while the broker serves: an operator looks first."""
    try:
        elsewhere = ReadElsewhere.from_json(request.body) if request.body else ReadElsewhere()
    except BodyError as error:
        text = f"the groups that read elsewhere cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    return Reply(body=(await drain_report(broker, elsewhere)).to_json())


@routes.on(BeginDrain)
async def begin_drain(broker: Broker, request: Request[BeginDrain]) -> Reply:
    """Begin a drain; answered when the state would survive a crash and name servers know it."""
    _check_may_change(broker)
    grace_ms = request.header.grace_ms
    if not 0 <= grace_ms <= _MOST_GRACE_MS:
        text = f"graceMs is {grace_ms}, allowed are 0 to {_MOST_GRACE_MS}"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    if not broker.drain.is_on:
        audit(request, "begins to drain")
    broker.drain.begin(grace_ms / 1000 if await _has_producers(broker) else 0.0)
    return await _answered(broker)


@routes.on(EndDrain)
async def end_drain(broker: Broker, request: Request[EndDrain]) -> Reply:
    """End a drain; answered when name servers know that the broker accepts messages again."""
    _check_may_change(broker)
    if broker.drain.is_on:
        audit(request, "takes messages again, the drain is over")
    broker.drain.end()
    return await _answered(broker)


async def _has_producers(broker: Broker) -> bool:
    """Whether a producer is live or has sent in the last minute: a new one is not known before its
    first heartbeat."""
    await broker.sampling.refresh(broker)
    (_, stored_per_s, _), _ = broker.statistics.recent_tps(broker.monotonic())
    return stored_per_s > 0 or broker.producers.has_any(but=INNER_PRODUCER_GROUP)


async def _answered(broker: Broker) -> Reply:
    reply = await broker.saving.reply_when_saved(broker.drain, Reply())
    await broker.registration.register_everywhere()
    return reply


@routes.on(LeaveCluster)
async def leave_cluster(broker: Broker, request: Request[LeaveCluster]) -> Reply:
    """Leave the name servers; refused if anything was stored since the operator looked."""
    _check_may_change(broker)
    drain, log_end = broker.drain, broker.store.max_log_offset
    if not drain.refusal:
        name = broker.config.broker_name
        text = f"{name} still takes messages; it drains first: sparrowmq broker drain {name}"
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, text)
    if drain.state is not DrainState.LEFT:
        if log_end != request.header.log_end:
            text = f"its log ends at {log_end}, not at {request.header.log_end}; look again"
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, text)
        audit(request, "is drained and leaves the name servers")
        drain.leave()
    await broker.saving.reply_when_saved(drain, Reply())
    unconfirmed = await broker.registration.leave()
    return Reply(ClusterLeft(unconfirmed=",".join(unconfirmed)))


def _check_may_change(broker: Broker) -> None:
    """Raise RequestRefused on a slave, and while the role is handed over."""
    check_is_master(broker)
    if broker.is_handing_over:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, broker.send_refusal)
