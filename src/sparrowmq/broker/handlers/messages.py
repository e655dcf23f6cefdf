"""Stored messages: found by offset id, key or unique id; recalled before their delivery time."""

from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import append, encode_fields, place
from sparrowmq.broker.delivery.timer_delivery import recall_key
from sparrowmq.broker.send_checks import check_size, store_refusal
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import (
    MessageRecalled,
    MessagesFound,
    QueryMessage,
    RecallAnswer,
    RecallHandle,
    RecallMessage,
    ViewMessage,
)
from sparrowmq.protocol.properties import (
    BORN_TIMESTAMP,
    PRODUCER_GROUP,
    TAGS,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS,
    UNIQUE_KEY,
)
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.errors import MessageTooLarge, StoreStopped
from sparrowmq.store.messages import PutMessage

routes: Routes[Broker] = Routes()
_BY_TAG = "T"
_MOST_RESULTS = 64
_MOST_BYTES = 8 * 1024 * 1024


@routes.on(ViewMessage)
def view_message(broker: Broker, request: Request[ViewMessage]) -> Reply:
    """Return the record at a log offset."""
    record = broker.store.read_message(request.header.offset)
    if record is None:
        text = f"no message at log offset {request.header.offset} of {broker.config.broker_name}"
        # Apache answers SYSTEM_ERROR, and its clients look at the text only
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return Reply(body=record)


@routes.on(QueryMessage)
async def query_message(broker: Broker, request: Request[QueryMessage]) -> Reply:
    """Find messages by key, newest first, at most 64; the answer says if there were more."""
    header = request.header
    if header.index_type == _BY_TAG:
        # An answer from the keys would answer a different question
        text = "tags are not indexed here; query by key or unique id, or consume with a tag filter"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)
    most = min(max(1, header.max_num), _MOST_RESULTS)
    if header.is_unique == "true":
        most = _MOST_RESULTS
    end = header.end_timestamp if header.end_timestamp > 0 else 0x7FFFFFFFFFFFFFFF
    found = broker.store.find_by_key(header.topic, header.key, header.begin_timestamp, end, most)
    records: list[bytes] = []
    size = 0
    for log_offset in found.log_offsets:
        record = broker.store.read_message(log_offset)
        if record is not None and size + len(record) <= _MOST_BYTES:
            records.append(record)
            size += len(record)
    if not records:
        text = f"no message of topic {header.topic} with key {header.key} in that time range"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)
    answer = MessagesFound(
        index_last_update_timestamp=found.last_timestamp,
        index_last_update_phyoffset=found.last_log_offset,
        cut=found.is_cut or len(records) < len(found.log_offsets),
    )
    return Reply(answer, chunks=records, body_bytes=size)


# ---- recall of messages that wait for their delivery time


_TAG = "_RECALL_TAG_"


@routes.on(RecallMessage)
def recall_message(broker: Broker, request: Request[RecallMessage]) -> Handled:
    """Store a recall marker for a message; the marker is safe when this is answered."""
    clock = broker.delivery.clock
    now_ms = clock.now_ms()
    if not clock.is_saved:
        return broker.saving.handle_when_saved(clock, partial(recall_message, broker, request))
    try:
        return _recall(broker, request, now_ms)
    except RequestRefused as refused:
        return Reply(RecallAnswer(), code=refused.code, remark=refused.text)


def _recall(broker: Broker, request: Request[RecallMessage], now_ms: int) -> Reply | None:
    header = request.header
    handle = _checked(broker, header, now_ms)
    fields = {
        TAGS: _TAG,
        TIMER_DELETE_UNIQUE_KEY: recall_key(handle.topic, handle.msg_id),
        UNIQUE_KEY: handle.msg_id,
        TIMER_DELIVER_MS: str(handle.time_ms),
        BORN_TIMESTAMP: str(now_ms),
    }
    if header.producer_group:
        fields[PRODUCER_GROUP] = header.producer_group
    put = PutMessage(
        handle.topic,
        0,
        0,
        0,
        now_ms,
        request.connection.peer_bytes,
        0,
        b"0",
        encode_fields(fields),
        tag_code(_TAG),
        handle.msg_id,
    )
    placement = place(broker, put, fields, now_ms)
    check_size(broker, len(placement.put.body), len(placement.put.properties))
    try:
        stored = append(broker, placement, now_ms)
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise store_refusal(error) from error
    broker.traffic.dedup.recalled(broker, handle.topic, handle.msg_id)
    reply = Reply(MessageRecalled(msg_id=handle.msg_id))
    end = stored.log_offset + stored.size
    return broker.durability.reply_when_safe(request, reply, end)


def _checked(broker: Broker, header: RecallMessage, now_ms: int) -> RecallHandle:
    if header.topic not in broker.topics:
        text = f"topic {header.topic[:200]} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    try:
        handle = RecallHandle.parse(header.recall_handle)
    except ValueError as error:
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
    fault = None
    if handle.topic != header.topic:
        fault = f"the handle is one of topic {handle.topic[:200]}, not of {header.topic}"
    elif handle.broker_name != broker.config.broker_name:
        fault = f"the handle is one of broker {handle.broker_name[:200]}"
    elif any(mark in handle.msg_id for mark in "\x01\x02"):
        fault = "the handle holds a separator of properties"
    elif not 0 < handle.time_ms - now_ms < broker.config.max_timer_delay_s * 1000:
        fault = "it is too late: the message is delivered or about to be"
    if fault is not None:
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, fault)
    return handle
