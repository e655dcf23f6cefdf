"""Finding stored messages."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class ViewMessage(RequestHeader, frozen=True, kw_only=True):
    """The message at a log offset, which is what an offset id names."""

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
    """"true" when the key is a unique id."""
    index_type: str | None = None
    """K or nothing for keys, U for unique ids, T for tags, which Apache 5.5 indexes as well."""


class MessagesFound(ResponseHeader, frozen=True, kw_only=True):
    """How far the index is, and whether the answer was cut."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int
    cut: bool = False
    """Ours: there were more than an answer may hold."""
