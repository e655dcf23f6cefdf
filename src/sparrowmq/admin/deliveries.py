"""What a broker can be asked to do with a stored message: hand it to a live member, or ask the
producers again how its transaction ended."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sparrowmq.admin.brokers import address_of_broker
from sparrowmq.admin.cluster_calls import ClusterCalls, answered
from sparrowmq.admin.errors import AdminError, NotFound, shown
from sparrowmq.admin.members import connected
from sparrowmq.admin.messages import message
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.consumer_calls import ConsumeMessageDirectly
from sparrowmq.protocol.headers.transactions import ResumeCheckHalfMessage
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, check_group
from sparrowmq.protocol.route import MASTER_ID

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
    """`consumed`, `asked to retry`, `rolled back`, `failed` or `returned nothing`; of a dry run
    `would be delivered`."""
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
    dry_run: bool,
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
    if dry_run:
        return Delivered(
            message_id=found.msg_id,
            group=group,
            client_id=member,
            result="would be delivered",
            is_ok=True,
            remark="",
            took=timedelta(),
        )
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


async def resume_transaction(cluster: ClusterCalls, message_id: str) -> MessageExt:
    """Make a broker ask the producers again, as if for the first time. Raises ValueError, NotFound,
    AdminError."""
    found = await message(cluster, message_id, None)
    if found.topic != TRANS_CHECK_MAX_TIME_TOPIC:
        raise NotFound("transaction set aside", message_id, f"it is a message of {found.topic}")
    address = await address_of_broker(cluster, found.broker_name, MASTER_ID)
    header = ResumeCheckHalfMessage(msg_id=found.offset_msg_id, topic=found.topic)
    await answered(partial(cluster.call, address, header))
    return found
