"""Operators ask for the limits of a broker."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.traffic.report import limits_of
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.limit_report import LimitReport, ListLimits

routes: Routes[Broker] = Routes()


@routes.on(ListLimits)
async def list_limits(broker: Broker, request: Request[ListLimits]) -> Reply:
    """Quotas and largest backlogs with their use."""
    return Reply(body=LimitReport(limits=tuple(await limits_of(broker))).to_json())
