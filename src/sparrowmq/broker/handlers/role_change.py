"""Requests of operators that make a master hand over its role to a slave."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication.role_change import CannotChange, Inheritance
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.replication import HandedOver, HandOver, TakenOver, TakeOver

routes: Routes[Broker] = Routes()


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
            if not header.dry_run:
                await change.take_over_from_none()
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except CannotChange as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    return Reply(answer)
