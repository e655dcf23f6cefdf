"""Checking a subscription before its consumer starts."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.pull_filter import sql_filter
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import CheckClientRequest
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.clients import CheckClientConfig
from sparrowmq.protocol.subscription import SQL92

routes: Routes[Broker] = Routes()


@routes.on(CheckClientConfig)
def check_client_config(broker: Broker, request: Request[CheckClientConfig]) -> Reply:
    """Tag expressions are always fine; an SQL92 condition has to be one."""
    try:
        wanted = CheckClientRequest.from_json(request.body).subscription_data
    except BodyError as error:
        text = f"the client's configuration cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    if wanted is None or wanted.is_tag:
        return Reply()
    if wanted.expression_type != SQL92:
        text = f"expression type {wanted.expression_type} is unknown, allowed are TAG and SQL92"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text)
    sql_filter(wanted.sub_string)
    return Reply()
