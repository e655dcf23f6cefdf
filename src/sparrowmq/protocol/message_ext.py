"""Messages read from a broker or a store."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar, overload

from msgspec.structs import replace

from sparrowmq.clock import date_of
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.compression import CompressionType, decompress
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.hosts import Address, decode_host
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.properties import decode_properties
from sparrowmq.protocol.record import Record, RecordError, decode_record
from sparrowmq.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from sparrowmq.protocol.typed_bodies import json_value, text_value

T = TypeVar("T")


class MessageExt:
    """A stored message. Properties and a compressed body are decoded on first access."""

    __slots__ = ("_body", "_properties", "broker_name", "record")

    def __init__(self, record: Record, broker_name: str = "") -> None:
        self.record = record
        self.broker_name = broker_name
        """Which broker it came from; empty if unknown."""
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None

    @property
    def topic(self) -> str:
        """The topic it is stored in; for a retried message that is the group's retry topic."""
        return self.record.topic

    @property
    def original_topic(self) -> str:
        """The topic it was first sent to."""
        return self.properties.get(names.RETRY_TOPIC) or self.record.topic

    @property
    def queue_id(self) -> int:
        """Its queue."""
        return self.record.queue_id

    @property
    def queue(self) -> MessageQueue:
        """Its queue with topic and broker."""
        return MessageQueue(self.record.topic, self.broker_name, self.record.queue_id)

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""
        return self.record.queue_offset

    @property
    def place(self) -> str:
        """Broker, queue id and queue offset, as people read and type them: `broker-a/3/1841`."""
        return f"{self.broker_name}/{self.record.queue_id}/{self.record.queue_offset}"

    @property
    def log_offset(self) -> int:
        """Its place in the broker's commit log, in bytes."""
        return self.record.log_offset

    @property
    def store_size(self) -> int:
        """Bytes it takes in the commit log."""
        return self.record.size

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises BodyError if it is broken, TooLarge over 4 MiB."""
        body = self._body
        if body is None:
            body = self.record.body
            if self.record.sys_flag & COMPRESSED:
                body = decompress(body, CompressionType.of(self.record.sys_flag))
            self._body = body
        return body

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = Any) -> Any:
        """The value of a JSON body: plain, or as a dataclass, msgspec struct or pydantic model.

        Raises BodyError naming what does not fit.
        """
        return json_value(self.body, kind)

    def text(self) -> str:
        """The body as text. Raises BodyError if it is not UTF-8."""
        return text_value(self.body)

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including RocketMQ's own."""
        properties = self._properties
        if properties is None:
            properties = self._properties = decode_properties(self.record.properties)
        return properties

    @property
    def user_properties(self) -> dict[str, str]:
        """The application's own properties."""
        hidden = names.SYSTEM_PROPERTIES
        return {name: value for name, value in self.properties.items() if name not in hidden}

    @property
    def tags(self) -> str | None:
        """Its tag."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it can be found by."""
        return tuple(self.properties.get(names.KEYS, "").split())

    @property
    def sharding_key(self) -> str | None:
        """The key that selected its queue."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def delay_level(self) -> int:
        """The level it was delayed by, 0 for none."""
        level = self.properties.get(names.DELAY_LEVEL, "0")
        return int(level) if level.isascii() and level.isdigit() else 0

    @property
    def msg_id(self) -> str:
        """The sender's unique id; the offset id if it has none."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id made of the broker's address and the commit log offset."""
        return offset_id(self.record.store_host, self.record.log_offset)

    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction."""
        found = self.properties
        return found.get(names.TRANSACTION_ID) or found.get(names.UNIQUE_KEY)

    @property
    def flag(self) -> int:
        """The number set by the sender."""
        return self.record.flag

    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits (sys_flag.py)."""
        return self.record.sys_flag

    @property
    def born_timestamp(self) -> int:
        """When it was sent, by the sender's clock, ms."""
        return self.record.born_timestamp

    @property
    def born_at(self) -> datetime:
        """`born_timestamp` as a date, in UTC."""
        return date_of(self.record.born_timestamp)

    @property
    def born_host(self) -> Address:
        """Address of the producer."""
        return decode_host(self.record.born_host)

    @property
    def store_timestamp(self) -> int:
        """When it was stored, by the broker's clock, ms."""
        return self.record.store_timestamp

    @property
    def stored_at(self) -> datetime:
        """`store_timestamp` as a date, in UTC."""
        return date_of(self.record.store_timestamp)

    @property
    def store_host(self) -> Address:
        """Address of the broker that stored it."""
        return decode_host(self.record.store_host)

    @property
    def reconsume_times(self) -> int:
        """How often its group has failed to consume it."""
        return self.record.reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        """Log offset of the half message that this one commits."""
        return self.record.prepared_transaction_offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageExt):
            return NotImplemented
        return self.record == other.record and self.broker_name == other.broker_name

    def __hash__(self) -> int:
        return hash((self.record.store_host, self.record.log_offset, self.record.queue_offset))

    def __repr__(self) -> str:
        return (
            f"MessageExt({self.topic!r}, queue {self.queue_id}, offset {self.queue_offset}, "
            f"id {self.msg_id}, {len(self.record.body)} bytes stored)"
        )


def failed_again(message: MessageExt) -> MessageExt:
    """The same message with its failure count increased by one."""
    record = message.record
    return MessageExt(
        replace(record, reconsume_times=record.reconsume_times + 1), message.broker_name
    )


def decode_messages(
    data: bytes | memoryview, broker_name: str = "", *, check_crc: bool = True
) -> list[MessageExt]:
    """The messages of a pull's body, in their order. Raises BodyError for a broken record."""
    messages: list[MessageExt] = []
    at, end = 0, len(data)
    try:
        while at < end:
            record = decode_record(data, at, check_crc=check_crc)
            at += record.size
            if record.sys_flag & _WRAPPED == _WRAPPED:
                messages.extend(_unwrap(record, broker_name))
            else:
                messages.append(MessageExt(record, broker_name))
    except RecordError as error:
        raise BodyError(str(error)) from error
    return messages


_WRAPPED = INNER_BATCH | NEED_UNWRAP


def _unwrap(record: Record, broker_name: str) -> list[MessageExt]:
    """The messages inside one record of a batch consume queue."""
    batch = decode_batch(MessageExt(record).body)
    return [
        MessageExt(
            replace(
                record,
                flag=flag,
                body=body,
                properties=properties,
                queue_offset=record.queue_offset + position,
                sys_flag=record.sys_flag & ~COMPRESSED,
            ),
            broker_name,
        )
        for position, (flag, body, properties) in enumerate(batch)
    ]
