"""An outgoing message: properties, compression and header, built once for all attempts."""

from collections.abc import Mapping, Sequence

import msgspec

from sparrowmq.client.argument_checks import check_kind
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.compression import CompressionType, compress
from sparrowmq.protocol.headers.reply import SendReplyV2
from sparrowmq.protocol.headers.send import SendBatchMessage, SendMessageV2
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.protocol.message import Message, MessageQueue, wire_properties
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, is_retry_topic
from sparrowmq.protocol.properties import encode_properties, format_properties
from sparrowmq.protocol.sys_flag import COMPRESSED, TRANSACTION_PREPARED

_NOTHING: Mapping[str, str] = {}
_BATCHED_HEAD_BYTES = 22
"""The size of a message in a batch without its body and properties."""


class Outgoing(msgspec.Struct):
    """Header (not yet for a queue), body and the unique id."""

    header: SendMessageV2
    body: bytes
    msg_id: str

    def for_queue(self, queue: MessageQueue) -> SendMessageV2:
        """The header of one attempt."""
        return msgspec.structs.replace(
            self.header, queue_id=queue.queue_id, broker_name=queue.broker_name
        )


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for packing messages."""

    group: str
    max_body_bytes: int
    compress_from_bytes: int
    compression: CompressionType
    default_queues: int


def pack(
    message: Message,
    how: Packing,
    ids: UniqueIds,
    now_ms: int,
    system: Mapping[str, str] = _NOTHING,
) -> Outgoing:
    """Pack one message, with RocketMQ's own properties added. Raises ValueError if too large."""
    if len(message.body) > how.max_body_bytes:
        raise ValueError(
            f"body of {len(message.body)} bytes, at most {how.max_body_bytes} allowed;"
            " send a reference to it instead"
        )
    body, sys_flag = message.body, 0
    if len(body) >= how.compress_from_bytes:
        body = compress(body, how.compression)
        sys_flag = COMPRESSED | how.compression.flag
    properties = wire_properties(message)
    msg_id = properties[names.UNIQUE_KEY] = ids.next()
    kind = SendMessageV2
    if system:
        properties |= system
        if system.get(names.MESSAGE_TYPE) == names.REPLY_MESSAGE_TYPE:
            kind = SendReplyV2
        if names.TRANSACTION_PREPARED in system:
            sys_flag |= TRANSACTION_PREPARED
    header = kind(
        producer_group=how.group,
        topic=message.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=how.default_queues,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=now_ms,
        flag=message.flag,
        properties=format_properties(properties),
    )
    return Outgoing(header, body, msg_id)


def check_batch(messages: Sequence[Message]) -> None:
    """Raises ValueError for messages that cannot share a batch."""
    if not messages:
        raise ValueError("a batch needs at least one message")
    first = messages[0]
    check_kind("a message", first, Message)
    if is_retry_topic(first.topic):
        raise ValueError(f"topic {first.topic} is a retry topic, which takes no batches")
    for message in messages:
        check_kind("a message", message, Message)
        if message.topic != first.topic:
            text = f"a batch has one topic, this one has {first.topic} and {message.topic}"
            raise ValueError(text)
        if message.delay_level or message.delay_ms is not None or message.deliver_time_ms:
            raise ValueError("a batch cannot be delayed; send delayed messages one by one")
        if message.wait_store_ok is not first.wait_store_ok:
            raise ValueError("the messages of a batch differ in wait_store_ok, must be alike")


def pack_batches(
    messages: Sequence[Message], how: Packing, ids: UniqueIds, now_ms: int, room: int = 0
) -> list[Outgoing]:
    """Pack messages of one topic into as few sends as their size allows, leaving `room` bytes per
    message.

    Batches are never compressed, since brokers take them apart. Raises ValueError for messages that
    cannot share a batch.
    """
    check_batch(messages)
    packed: list[Outgoing] = []
    parts: list[tuple[int, bytes, bytes]] = []
    msg_ids: list[str] = []
    size = 0
    for message in messages:
        properties = wire_properties(message)
        msg_id = properties[names.UNIQUE_KEY] = ids.next()
        encoded = encode_properties(properties)
        own = _BATCHED_HEAD_BYTES + len(message.body) + len(encoded) + room
        if own > how.max_body_bytes:
            raise ValueError(f"message of {own} bytes, at most {how.max_body_bytes} fit a batch")
        if size + own > how.max_body_bytes:
            packed.append(_batch(messages[0], parts, msg_ids, how, now_ms))
            parts, msg_ids, size = [], [], 0
        parts.append((message.flag, message.body, encoded))
        msg_ids.append(msg_id)
        size += own
    packed.append(_batch(messages[0], parts, msg_ids, how, now_ms))
    return packed


def _batch(
    first: Message,
    parts: list[tuple[int, bytes, bytes]],
    msg_ids: list[str],
    how: Packing,
    now_ms: int,
) -> Outgoing:
    wait = "true" if first.wait_store_ok else "false"
    header = SendBatchMessage(
        producer_group=how.group,
        topic=first.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=how.default_queues,
        queue_id=0,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=0,
        properties=format_properties({names.WAIT_STORE_OK: wait}),
        batch=True,
    )
    return Outgoing(header, encode_batch(parts), ",".join(msg_ids))
