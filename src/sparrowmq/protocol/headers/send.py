"""Headers for sends, with long names (10) and one-letter names (310, 320), for their responses, and
for sending back a message that could not be consumed."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader
from sparrowmq.protocol.java_numbers import Int, Long
from sparrowmq.protocol.trace import TRACE_FIELDS


class SendMessage(RequestHeader, frozen=True, kw_only=True):
    """One message, or a batch body when `batch` is true."""

    CODE: ClassVar[RequestCode] = RequestCode.SEND_MESSAGE

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False


# Java's client shortens the names to save bytes on every send.
_ONE_LETTER = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}


class SendMessageV2(RequestHeader, frozen=True, kw_only=True, rename=_ONE_LETTER):
    """The same fields as SendMessage under one-letter names."""

    CODE: ClassVar[RequestCode] = RequestCode.SEND_MESSAGE_V2

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: str | None = None


class SendBatchMessage(SendMessageV2, frozen=True, kw_only=True):
    """A batch: one-letter names, body in batch format."""

    CODE: ClassVar[RequestCode] = RequestCode.SEND_BATCH_MESSAGE


AnySend = SendMessage | SendMessageV2 | SendBatchMessage


class SendAnswer(ResponseHeader, frozen=True, kw_only=True):
    """Base of the responses to a send."""

    CONSTANTS: ClassVar[Mapping[str, str]] = TRACE_FIELDS


class MessageSent(SendAnswer, frozen=True, kw_only=True):
    """Where a plain message was stored; the id encodes broker address and log offset."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str
    """The unique id, whether or not there is a transaction: clients expect it there."""


class SpecialMessageSent(SendAnswer, frozen=True, kw_only=True):
    """The same for batches and timer messages, with the fields that only they have."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class SendLimited(ResponseHeader, frozen=True, kw_only=True):
    """The send was refused because it exceeds a limit."""

    retry_after_ms: int = msgspec.field(name="sparrowRetryAfterMs")
    """How long to wait before trying again; SparrowMQ's producers do."""


class SendBack(RequestHeader, frozen=True, kw_only=True):
    """Send back a message: store it again for its group, to be delivered later or, after the last
    attempt, as a dead letter."""

    CODE: ClassVar[RequestCode] = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: int
    """The message's commit log offset."""
    group: str
    delay_level: int
    """0: the broker decides by the number of attempts; -1: straight to the dead letters."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
