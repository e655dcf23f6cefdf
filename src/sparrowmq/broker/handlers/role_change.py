"""A master gives its role to a slave, at the request of an operator."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication.role_change import CannotChange, Inheritance
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.replication import HandedOver, HandOver, TakeOver

routes: Routes[Broker] = Routes()


@routes.on(HandOver)
async def hand_over(broker: Broker, request: Request[HandOver]) -> Reply:
    """Of the master: answered when the slave has accepted."""
    slave_id = request.header.slave_id
    audit(request, "hands over to %s", "its best slave" if slave_id < 0 else f"slave {slave_id}")
    try:
        address = await broker.replication.role_change.hand_over(
            slave_id if slave_id >= 0 else None
        )
    except CannotChange as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    return Reply(HandedOver(new_master=address))


@routes.on(TakeOver)
async def take_over(broker: Broker, request: Request[TakeOver]) -> Reply:
    """Of a slave: its last master asks for it, or an operator when there is none."""
    header, change = request.header, broker.replication.role_change
    audit(request, "takes over from %s", header.master_address or "no master")
    try:
        if header.master_address:
            inheritance = Inheritance.from_json(request.body)
            await change.take_over(header.master_address, header.log_end, inheritance)
        else:
            await change.take_over_from_none(header.accept_loss)
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except CannotChange as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    return Reply()
