"""Sending: single messages and batches become records of the commit log.

This is the hot path, and it runs inside the read callback. A plain message costs one look-up of its
topic (`topics.checked_for_send` remembers that all checks passed), one search for the three
properties that are indexed, one append, and one reply; no property is parsed, nothing is logged or
timed, and there is no task. Checks that nearly always pass are inline comparisons; a function is
only called to explain a refusal. The raw text is searched for the names of special properties
first: parsing all properties of every message would cost more than storing it.
"""

import struct
from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import SPECIAL, Placement, append, place, place_quickly
from sparrowmq.broker.delivery.retry import dead_letter_when_exhausted
from sparrowmq.broker.send_checks import (
    UNUSUAL_BITS,
    admit,
    check_size,
    checked_sys_flag,
    store_refusal,
)
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request, Routes
from sparrowmq.protocol.batch import decode_columns
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.messages import RecallableSent, format_handle
from sparrowmq.protocol.headers.send import (
    AnySend,
    MessageSent,
    SendBatchMessage,
    SendMessage,
    SendMessageV2,
    SpecialMessageSent,
)
from sparrowmq.protocol.indexed_properties import indexed_columns, indexed_properties
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.properties import UNIQUE_KEY, parse_properties
from sparrowmq.protocol.record_batch import BatchedPuts
from sparrowmq.protocol.tags import cached_tag_code
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.errors import MessageTooLarge, StoreStopped
from sparrowmq.store.messages import PutBatch, PutMessage, Stored

routes: Routes[Broker] = Routes()


@routes.on(SendMessage, SendMessageV2)
def send_message(
    broker: Broker, request: Request[AnySend], admitted: TopicConfig | None = None
) -> Handled:
    """Store one message, and reply when it is as safe as the flush mode promises."""
    header = request.header
    if header.batch:
        return send_batch(broker, request)
    topic = broker.topics.checked_for_send.get(header.topic) or admitted
    if topic is None:
        return admit(broker, request, send_message)
    queue_id = header.queue_id
    if not 0 <= queue_id < topic.write_queue_nums:
        queue_id = _queue(broker, queue_id, topic)
    if broker.busy_reason:
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, broker.busy_reason)
    text = header.properties
    if text and text[-1] != "\x02":
        text += "\x02"
    tag, uniq_key, keys = indexed_properties(text)
    if not uniq_key:
        uniq_key = broker.unique_ids.next()
        text += f"{UNIQUE_KEY}\x01{uniq_key}\x02"
    body, properties = request.body, text.encode() + broker.cluster_property
    put = PutMessage(
        header.topic,
        queue_id,
        header.flag,
        header.sys_flag,
        header.born_timestamp,
        request.connection.peer_bytes,
        header.reconsume_times,
        body,
        properties,
        cached_tag_code(tag) if tag else 0,
        uniq_key,
        keys,
    )
    if header.reconsume_times or "DELAY" in text or "TIMER_" in text or "TRAN_MSG" in text:
        return send_special(broker, request, put, text)
    if header.sys_flag & UNUSUAL_BITS:
        put.sys_flag = checked_sys_flag(header.sys_flag, header.topic)
    config = broker.config
    if len(body) > config.max_message_bytes or len(properties) > config.max_properties_bytes:
        check_size(broker, len(body), len(properties))
    return _store_and_answer(broker, request, put)


def _store_and_answer(broker: Broker, request: Request[AnySend], put: PutMessage) -> Reply | None:
    """Append, wake the pulls that wait on the queue, and reply when safe."""
    try:
        stored = broker.store.append(put, broker.clock())
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise store_refusal(error) from error
    broker.durability.announce(put.topic, put.queue_id)
    reply = Reply(
        MessageSent(
            msg_id=f"{broker.id_prefix}{stored.log_offset:016X}",
            queue_id=put.queue_id,
            queue_offset=stored.queue_offset,
            transaction_id=put.uniq_key,
        )
    )
    if not broker.durability.is_sync:  # the usual case: not even a call
        return reply
    return broker.durability.answer_send(request, reply, stored.log_offset + stored.size)


# ---- messages that first wait in one of the broker's queues: delayed, half messages, retries


def send_special(broker: Broker, request: Request[AnySend], put: PutMessage, text: str) -> Handled:
    """Store a message whose properties (`text`) may send it to a queue other than its own.

    The reply names the requested queue, and carries the handle that recalls a timer.
    """
    clock = broker.delivery.clock
    now_ms = clock.now_ms()
    if not clock.is_saved:
        again = partial(send_message, broker, request, broker.topics.get(put.topic))
        return broker.saving.handle_when_saved(clock, again)
    topic, queue_id = put.topic, put.queue_id
    placement = None
    # Retry topics begin with %: their messages may have become dead letters.
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
        check_size(broker, len(put.body), len(put.properties))
    try:
        stored = append(broker, placement, now_ms)
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise store_refusal(error) from error
    if placement.attempts:
        broker.dead_letters.note(placement)
    reply = Reply(_sent(broker, topic, queue_id, placement, stored))
    return broker.durability.answer_send(request, reply, stored.log_offset + stored.size)


def _placement(
    broker: Broker, request: Request[AnySend], put: PutMessage, text: str, now_ms: int
) -> Placement:
    """The placement of a message that needs its properties parsed."""
    header, fields = request.header, parse_properties(text)
    if is_retry_topic(put.topic) and (header.reconsume_times or not SPECIAL.isdisjoint(fields)):
        dead = dead_letter_when_exhausted(broker, put, fields, header.max_reconsume_times)
        if dead is not None:
            return dead
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


# ---- batches


@routes.on(SendBatchMessage)
def send_batch(
    broker: Broker, request: Request[AnySend], admitted: TopicConfig | None = None
) -> Handled:
    """Store a batch: contiguous offsets in one queue, all or nothing."""
    header = request.header
    topic = broker.topics.checked_for_send.get(header.topic) or admitted
    if topic is None:
        return admit(broker, request, send_batch)
    queue_id = _queue(broker, header.queue_id, topic)
    if is_retry_topic(header.topic):
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch cannot go to the retry topic {header.topic}; send its messages one by one",
        )
    if broker.busy_reason:
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, broker.busy_reason)
    put = _unpack(broker, request, queue_id)
    try:
        stored = broker.store.append_batch(put, broker.clock())
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise store_refusal(error) from error
    broker.durability.announce(header.topic, queue_id)
    # Format all ids at once: a third of the cost of formatting each one.
    offsets = struct.pack(f">{len(stored.log_offsets)}q", *stored.log_offsets)
    prefix = broker.id_prefix
    ids = prefix + offsets.hex(",", 8).upper().replace(",", f",{prefix}")
    reply = Reply(
        SpecialMessageSent(msg_id=ids, queue_id=queue_id, queue_offset=stored.queue_offset)
    )
    return broker.durability.answer_send(request, reply, stored.end)


def _unpack(broker: Broker, request: Request[AnySend], queue_id: int) -> PutBatch:
    """The messages of a batch body, each with its own properties and no others.

    The batch's own properties are left out, as in Apache's MessageExtEncoder: they include the
    unique id of the whole batch, which every message would then share.
    """
    header = request.header
    # What is checked for the whole batch holds for every body in it.
    if len(request.body) > broker.config.max_message_bytes:
        check_size(broker, len(request.body), 0)
    try:
        flags, bodies, properties = decode_columns(request.body)
    except BodyError as error:
        text = f"the batch body cannot be read: {error}"
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, text) from error
    if not flags:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
    longest = max(map(len, properties))
    if longest > broker.config.max_properties_bytes:
        check_size(broker, 0, longest)
    messages = BatchedPuts(flags, bodies, properties, *indexed_columns(properties))
    sys_flag = header.sys_flag
    if sys_flag & UNUSUAL_BITS:
        sys_flag = checked_sys_flag(sys_flag, header.topic)
    return PutBatch(
        header.topic,
        queue_id,
        sys_flag,
        header.born_timestamp,
        request.connection.peer_bytes,
        header.reconsume_times,
        messages,
    )


def _queue(broker: Broker, queue_id: int, topic: TopicConfig) -> int:
    if 0 <= queue_id < topic.write_queue_nums:
        return queue_id
    if queue_id < 0:
        return broker.rng.randrange(max(1, topic.write_queue_nums))
    most = max(topic.write_queue_nums, topic.read_queue_nums)
    if queue_id < most:  # being shrunk: clients with an old route still send there
        return queue_id
    raise RequestRefused(
        ResponseCode.INVALID_PARAMETER,
        f"queue {queue_id} of topic {topic.topic_name} does not exist, allowed are 0 to {most - 1}",
    )
