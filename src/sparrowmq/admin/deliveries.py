"""Handing a stored message to a live member, to see how its handler deals with it."""

from dataclasses import dataclass
from datetime import timedelta

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import AdminError, NotFound, shown
from sparrowmq.admin.members import connected
from sparrowmq.admin.messages import message
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.consumer_calls import ConsumeMessageDirectly
from sparrowmq.protocol.names import check_group

_RESULTS = {
    "CR_SUCCESS": "consumed",
    "CR_COMMIT": "consumed",
    "CR_LATER": "asked to retry",
    "CR_ROLLBACK": "rolled back",
    "CR_THROW_EXCEPTION": "failed",
    "CR_RETURN_NULL": "returned nothing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The result of delivering a message to a member."""

    message_id: str
    group: str
    client_id: str
    result: str
    """`consumed`, `asked to retry`, `rolled back`, `failed` or `returned nothing`."""
    is_ok: bool
    remark: str
    took: timedelta


async def deliver(
    cluster: ClusterCalls,
    message_id: str,
    group: str,
    *,
    topic: str | None,
    client_id: str | None,
) -> Delivered:
    """Make a member handle a message now. Raises NotFound, AdminError."""
    check_group(group)
    found = await message(cluster, message_id, topic)
    online = await connected(cluster, group)
    here = [each for each in online.members if found.broker_name in each.brokers]
    names = [each.client_id for each in here]
    if client_id is None and not names:
        hint = f"group {group} has no live member at broker {found.broker_name}; start one"
        raise AdminError(f"nothing was delivered: {hint}")
    if client_id is not None and client_id not in names:
        raise NotFound("member", client_id, f"live members of group {group} are: {shown(names)}")
    member = client_id or names[0]
    header = ConsumeMessageDirectly(
        consumer_group=group, client_id=member, msg_id=found.offset_msg_id, topic=found.topic
    )
    response = await cluster.call(online.addresses[found.broker_name], header)
    try:
        result = ConsumeDirectlyResult.from_json(response.body)
    except ProtocolError as error:
        raise AdminError(f"the answer of {member} cannot be read: {error}") from error
    code = result.consume_result or ""
    return Delivered(
        message_id=found.msg_id,
        group=group,
        client_id=member,
        result=_RESULTS.get(code, code or "unknown"),
        is_ok=code in ("CR_SUCCESS", "CR_COMMIT"),
        remark=result.remark or "",
        took=timedelta(milliseconds=result.spent_time_mills),
    )
