"""Transactions that brokers have set aside, because no producer reported how they ended."""

from functools import partial

from sparrowmq.admin.brokers import address_of_broker
from sparrowmq.admin.cluster_calls import ClusterCalls, answered
from sparrowmq.admin.errors import NotFound
from sparrowmq.admin.messages import message
from sparrowmq.protocol.headers.transactions import ResumeCheckHalfMessage
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC
from sparrowmq.protocol.route import MASTER_ID


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
