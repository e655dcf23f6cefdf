"""Request-reply: the broker pushes a consumer's reply to the client that asked, and stores it."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.send_checks import (
    UNUSUAL_BITS,
    check_size,
    checked_sys_flag,
    store_refusal,
    topic_for_send,
)
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import NetError
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.reply import PushReply, SendReply, SendReplyV2
from sparrowmq.protocol.headers.send import MessageSent
from sparrowmq.protocol.properties import (
    KEYS,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    TAGS,
    UNIQUE_KEY,
    parse_properties,
)
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.errors import MessageTooLarge, StoreStopped
from sparrowmq.store.messages import PutMessage, Stored

routes: Routes[Broker] = Routes()

_PUSH_S = 10.0


@routes.on(SendReply, SendReplyV2)
async def send_reply(broker: Broker, request: Request[SendReply | SendReplyV2]) -> Reply:
    """Push a reply to the client that asked. It is stored in any case, so it can be found."""
    put = _put(broker, request)
    fault = await _push(broker, request)
    try:
        stored = broker.store.append(put, broker.clock())
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        if fault:
            raise store_refusal(error) from error
        broker.log.warning("a reply was pushed but not stored: %s", error)
        return Reply(_sent(broker, put, None))
    broker.durability.announce(put.topic, put.queue_id)
    code = ResponseCode.SYSTEM_ERROR if fault else ResponseCode.SUCCESS
    return Reply(_sent(broker, put, stored), code=code, remark=fault)


def _put(broker: Broker, request: Request[SendReply | SendReplyV2]) -> PutMessage:
    header = request.header
    topic = broker.topics.checked_for_send.get(header.topic) or topic_for_send(broker, request)
    queues = max(1, topic.write_queue_nums)
    queue_id = header.queue_id if 0 <= header.queue_id < queues else broker.rng.randrange(queues)
    fields = parse_properties(header.properties)
    sys_flag = header.sys_flag
    if sys_flag & UNUSUAL_BITS:
        sys_flag = checked_sys_flag(sys_flag, header.topic)
    put = PutMessage(
        header.topic,
        queue_id,
        header.flag,
        sys_flag,
        header.born_timestamp,
        request.connection.peer_bytes,
        header.reconsume_times,
        request.body,
        _ended(header.properties).encode(),
        tag_code(fields.get(TAGS)),
        fields.get(UNIQUE_KEY, ""),
        fields.get(KEYS, ""),
    )
    check_size(broker, len(put.body), len(put.properties))
    return put


def _ended(properties: str) -> str:
    return properties if not properties or properties[-1] == "\x02" else properties + "\x02"


async def _push(broker: Broker, request: Request[SendReply | SendReplyV2]) -> str:
    """Push the reply; returns why it did not reach its client, empty if it did."""
    header = request.header
    fields = parse_properties(header.properties)
    client_id = fields.get(REPLY_TO_CLIENT)
    if client_id is None:
        return (
            f"the reply does not name the client that asked: property {REPLY_TO_CLIENT} is missing"
        )
    asking = broker.producers.find(client_id)
    if asking is None:
        return f"the reply cannot be pushed: client {client_id} is not connected to this broker"
    now_ms = broker.clock()
    notice = PushReply(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        properties=f"{_ended(header.properties)}{PUSH_REPLY_TIME}\x01{now_ms}\x02",
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
        born_host=request.connection.peer,
        store_host=broker.address,
        store_timestamp=now_ms,
    )
    try:
        answer = await asking.connection.call(notice, request.body, timeout_s=_PUSH_S)
    except NetError as error:
        return f"the reply was not pushed to {client_id}: {error}"
    if answer.code != ResponseCode.SUCCESS:
        return f"client {client_id} did not take the reply: {answer.remark}"
    return ""


def _sent(broker: Broker, put: PutMessage, stored: Stored | None) -> MessageSent:
    return MessageSent(
        msg_id="0" if stored is None else f"{broker.id_prefix}{stored.log_offset:016X}",
        queue_id=put.queue_id,
        queue_offset=0 if stored is None else stored.queue_offset,
        transaction_id=put.uniq_key,
    )
