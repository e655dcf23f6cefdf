"""Finding stored messages: by offset id, by key, by unique id."""

from sparrowmq.broker.broker import Broker
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import MessagesFound, QueryMessage, ViewMessage

routes: Routes[Broker] = Routes()

_BY_TAG = "T"
_MOST_RESULTS = 64
_MOST_BYTES = 8 * 1024 * 1024


@routes.on(ViewMessage)
def view_message(broker: Broker, request: Request[ViewMessage]) -> Reply:
    """The record at a log offset."""
    record = broker.store.read_message(request.header.offset)
    if record is None:
        text = f"no message at log offset {request.header.offset} of {broker.config.broker_name}"
        # Apache answers SYSTEM_ERROR, and its clients look at the text only
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return Reply(body=record)


@routes.on(QueryMessage)
async def query_message(broker: Broker, request: Request[QueryMessage]) -> Reply:
    """Messages by key, newest first, at most 64; the answer says when there were more."""
    header = request.header
    if header.index_type == _BY_TAG:
        # An answer from the keys would be another question's
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
