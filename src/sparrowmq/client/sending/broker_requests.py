"""Requests that brokers send to producers: transaction checks, and replies to requests."""

from sparrowmq.client.client_core import ClientCore
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.headers.reply import PushReply
from sparrowmq.protocol.headers.transactions import CheckTransactionState
from sparrowmq.protocol.hosts import encode_host
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.properties import (
    CORRELATION_ID,
    PRODUCER_GROUP,
    REPLY_ARRIVE_TIME,
    parse_properties,
)
from sparrowmq.protocol.record import Record, body_crc

routes: Routes[ClientCore] = Routes()


@routes.on(CheckTransactionState)
async def check_transaction_state(
    client: ClientCore, request: Request[CheckTransactionState]
) -> Reply:
    """Ask the listener. The answer is a separate request, one-way like the broker's."""
    for message in decode_messages(request.body, check_crc=False):
        group = message.properties.get(PRODUCER_GROUP, "")
        producer = client.producers.get(group)
        ended = await producer.check_transaction(message, request.header) if producer else None
        if ended is not None:
            request.connection.send_oneway(ended)
        else:
            text = "group %r has no transactional producer in this client; ignoring the check of %s"
            client.log.warning(text, group, message.msg_id)
    return Reply()


@routes.on(PushReply)
def push_reply(client: ClientCore, request: Request[PushReply]) -> Reply:
    """Hand a reply to the request that waits for it; a late one is dropped."""
    reply = _reply_message(request.header, request.body, client.clock())
    correlation_id = reply.properties.get(CORRELATION_ID, "")
    takers = client.producers.values()
    if not any(taker.take_reply(correlation_id, reply) for taker in takers):
        client.log.warning("no request waits for the reply to %r", correlation_id)
    return Reply()


def _reply_message(header: PushReply, body: bytes, now_ms: int) -> MessageExt:
    properties = parse_properties(header.properties) | {REPLY_ARRIVE_TIME: str(now_ms)}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    record = Record(
        size=0,
        magic=0,
        body_crc=body_crc(body),
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        log_offset=0,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times,
        prepared_transaction_offset=0,
        body=body,
        topic=header.topic,
        properties=text.encode(),
    )
    return MessageExt(record)


def _host(text: str) -> bytes:
    host, _, port = text.lstrip("/").rpartition(":")  # Java writes its addresses with a slash
    try:
        return encode_host(host.strip("[]"), int(port))
    except ValueError:  # a host name: records only have room for addresses
        return encode_host("0.0.0.0", 0)
