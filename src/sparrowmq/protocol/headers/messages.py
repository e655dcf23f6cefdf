"""Headers for finding stored messages, and for recalling one that waits for its delivery time.

The answer to a timed send carries a handle, which is all that is needed to recall the message.
"""

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader
from sparrowmq.protocol.headers.send import SendAnswer
from sparrowmq.protocol.trace import REGION_FIELD

_VERSION = "v1"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class ViewMessage(RequestHeader, frozen=True, kw_only=True):
    """Ask for the message at a log offset, which is part of an offset id."""

    CODE: ClassVar[RequestCode] = RequestCode.VIEW_MESSAGE_BY_ID

    offset: int
    topic: str | None = None


class QueryMessage(RequestHeader, frozen=True, kw_only=True):
    """Messages of a topic by key or by unique id, within a time range."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    is_unique: str | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)
    """"true" if the key is a unique id."""
    index_type: str | None = None
    """K or nothing for keys, U for unique ids, T for tags, which Apache 5.5 indexes as well."""


class MessagesFound(ResponseHeader, frozen=True, kw_only=True):
    """How far the index is, and whether the answer was cut."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int
    cut: bool = False
    """Ours: there were more messages than an answer may hold."""


class RecallMessage(RequestHeader, frozen=True, kw_only=True):
    """Recall a message before it is delivered."""

    CODE: ClassVar[RequestCode] = RequestCode.RECALL_MESSAGE

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallableSent(SendAnswer, frozen=True, kw_only=True):
    """Where a message with a delivery time waits, and the handle that recalls it."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str
    recall_handle: str


class RecallAnswer(ResponseHeader, frozen=True, kw_only=True):
    """Every answer, even a refusal, has these: Java's client traces recalls only with a region."""

    CONSTANTS: ClassVar[Mapping[str, str]] = REGION_FIELD


class MessageRecalled(RecallAnswer, frozen=True, kw_only=True):
    """The unique id of the message that will not be delivered."""

    msg_id: str


class RecallHandle(NamedTuple):
    """The content of a handle: `v1 topic broker time id` in URL-safe base64."""

    topic: str
    broker_name: str
    time_ms: int
    msg_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle. Raises ValueError if it is invalid."""
        try:
            parts = urlsafe_b64decode(text.encode("ascii")).decode().split(" ")
        except (ValueError, UnicodeError):
            parts = []
        if len(parts) < 5 or parts[0] != _VERSION or not _is_number(parts[3]):
            raise ValueError(f"{text[:80]!r} is not a recall handle")
        return cls(parts[1], parts[2], int(parts[3]), parts[4])

    def __str__(self) -> str:
        return format_handle(self.topic, self.broker_name, self.time_ms, self.msg_id)


def format_handle(topic: str, broker_name: str, time_ms: int, msg_id: str) -> str:
    """A handle as text."""
    text = f"v1 {topic} {broker_name} {time_ms} {msg_id}"
    # Same as urlsafe_b64encode, in half the time: every timed send is answered with a handle.
    return b2a_base64(text.encode(), newline=False).translate(_URL_SAFE).decode("ascii")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
