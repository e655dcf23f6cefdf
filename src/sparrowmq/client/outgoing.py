"""A message on its way out: properties, compression and header, made once for all attempts."""

from collections.abc import Sequence

import msgspec

from sparrowmq.protocol import properties as names
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.compression import CompressionType, compress
from sparrowmq.protocol.headers.send import SendBatchMessage, SendMessageV2
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.properties import encode_properties, format_properties
from sparrowmq.protocol.sys_flag import COMPRESSED


class Outgoing(msgspec.Struct):
    """Header (for no queue yet), body and the unique id."""

    header: SendMessageV2
    body: bytes
    msg_id: str

    def for_queue(self, queue: MessageQueue) -> SendMessageV2:
        """The header of one attempt."""
        return msgspec.structs.replace(
            self.header, queue_id=queue.queue_id, broker_name=queue.broker_name
        )


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are made ready."""

    group: str
    max_body_bytes: int
    compress_from_bytes: int
    compression: CompressionType
    default_queues: int


def pack(message: Message, how: Packing, ids: UniqueIds, now_ms: int) -> Outgoing:
    """One message. Raises ValueError when it is too large."""
    if len(message.body) > how.max_body_bytes:
        raise ValueError(
            f"body of {len(message.body)} bytes, at most {how.max_body_bytes} allowed;"
            " send a reference to it instead"
        )
    body, sys_flag = message.body, 0
    if len(body) >= how.compress_from_bytes:
        body = compress(body, how.compression)
        sys_flag = COMPRESSED | how.compression.flag
    properties = message.wire_properties()
    msg_id = properties.setdefault(names.UNIQUE_KEY, ids.next())
    header = SendMessageV2(
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


def split_batch(messages: Sequence[Message], how: Packing) -> list[list[Message]]:
    """Batches that each fit into one send. Raises ValueError for what cannot be batched."""
    if not messages:
        raise ValueError("a batch needs at least one message")
    topic = messages[0].topic
    batches: list[list[Message]] = [[]]
    size = 0
    for message in messages:
        if message.topic != topic:
            text = f"a batch has one topic, this one has {topic} and {message.topic}"
            raise ValueError(text)
        if message.delay_level or message.delay_ms is not None or message.deliver_time_ms:
            raise ValueError("a batch cannot be delayed; send delayed messages one by one")
        own = len(message.body) + sum(len(k) + len(v) + 2 for k, v in message.properties.items())
        own += 256  # head, tags, keys and the properties we add
        if own > how.max_body_bytes:
            raise ValueError(f"message of {own} bytes, at most {how.max_body_bytes} fit a batch")
        if size + own > how.max_body_bytes:
            batches.append([])
            size = 0
        batches[-1].append(message)
        size += own
    return batches


def pack_batch(messages: Sequence[Message], how: Packing, ids: UniqueIds, now_ms: int) -> Outgoing:
    """Several messages of one topic; never compressed, as brokers take them apart."""
    parts = []
    msg_ids = []
    for message in messages:
        properties = message.wire_properties()
        msg_ids.append(properties.setdefault(names.UNIQUE_KEY, ids.next()))
        parts.append((message.flag, message.body, encode_properties(properties)))
    header = SendBatchMessage(
        producer_group=how.group,
        topic=messages[0].topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=how.default_queues,
        queue_id=0,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=0,
        properties="",
        batch=True,
    )
    return Outgoing(header, encode_batch(parts), ",".join(msg_ids))
