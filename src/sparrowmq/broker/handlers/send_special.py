"""Sends of messages that lie aside first: delayed, half of a transaction, or failed ones."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import SPECIAL, Placement, append, place
from sparrowmq.broker.delivery.quick_placement import place_quickly
from sparrowmq.broker.delivery.retry import sent_back
from sparrowmq.broker.sendable import (
    UNUSUAL_BITS,
    answer_when_safe,
    check_size,
    checked_sys_flag,
    refusal,
)
from sparrowmq.net.reply import Reply, Request
from sparrowmq.protocol.headers.recall import RecallableSent, format_handle
from sparrowmq.protocol.headers.send import AnySend, MessageSent
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.properties import parse_properties
from sparrowmq.store.errors import DiskFull, MessageTooLarge, StoreStopped
from sparrowmq.store.messages import PutMessage, Stored


def send_special(
    broker: Broker, request: Request[AnySend], put: PutMessage, text: str
) -> Reply | None:
    """Store a message whose properties (`text`) may ask for something else than its queue.

    The answer names the queue that was asked for; a timer can be taken back with its handle.
    """
    now_ms = broker.delivery.clock.now_ms()
    topic, queue_id = put.topic, put.queue_id
    placement = None
    # Retry topics begin so: their messages may be dead letters by now.
    if not request.header.reconsume_times and topic[0] != "%":
        placement = place_quickly(broker, put, text, now_ms)
    if placement is None:
        placement = _placement(broker, request, put, text, now_ms)
    put, config = placement.put, broker.config
    if put.sys_flag & UNUSUAL_BITS:
        put.sys_flag = checked_sys_flag(put.sys_flag, topic)
    if (
        len(put.body) > config.max_message_bytes
        or len(put.properties) > config.max_properties_bytes
    ):
        check_size(broker, put)
    try:
        stored = append(broker, placement, now_ms)
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise refusal(error) from error
    reply = Reply(_sent(broker, topic, queue_id, placement, stored))
    return answer_when_safe(broker, request, reply, stored.log_offset + stored.size)


def _placement(
    broker: Broker, request: Request[AnySend], put: PutMessage, text: str, now_ms: int
) -> Placement:
    """Of a message that takes more than a quick look."""
    header, fields = request.header, parse_properties(text)
    if is_retry_topic(put.topic) and (header.reconsume_times or not SPECIAL.isdisjoint(fields)):
        dead = sent_back(broker, put, fields, header.max_reconsume_times)
        if dead is not None:
            return Placement(dead)
    return place(broker, put, fields, now_ms, producer_group=header.producer_group)


def _sent(
    broker: Broker, topic: str, queue_id: int, placement: Placement, stored: Stored
) -> MessageSent | RecallableSent:
    msg_id = f"{broker.id_prefix}{stored.log_offset:016X}"
    key, time_ms = placement.put.uniq_key, placement.handle_ms
    if not time_ms:
        return MessageSent(
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=stored.queue_offset,
            transaction_id=key,
        )
    return RecallableSent(
        msg_id=msg_id,
        queue_id=queue_id,
        queue_offset=stored.queue_offset,
        transaction_id=key,
        recall_handle=format_handle(topic, broker.config.broker_name, time_ms, key),
    )
