"""Requests of operators for the limits of a broker."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.traffic.report import limits_of, windows_of
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.limit_report import LimitReport, ListLimits

routes: Routes[Broker] = Routes()


@routes.on(ListLimits)
async def list_limits(broker: Broker, request: Request[ListLimits]) -> Reply:
    """List quotas and largest backlogs with their use, and topics that are de-duplicated."""
    report = LimitReport(
        limits=tuple(await limits_of(broker)), windows=tuple(await windows_of(broker))
    )
    return Reply(body=report.to_json())
