"""Headers for offsets of queues and consumer groups."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader
from sparrowmq.protocol.java_numbers import Long

_EPOCH = msgspec.field(name="sparrowEpoch", default=None)
"""The epoch of the log in which offsets were learned; 0 if unknown."""


class QueryConsumerOffset(RequestHeader, frozen=True, kw_only=True):
    """Where a group stands in a queue."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool = True
    only_looks: bool | None = msgspec.field(name="sparrowOnlyLooks", default=None)
    """The caller will not move: a reset it has not learned of stays pending."""
    epoch: int | None = _EPOCH


class UpdateConsumerOffset(RequestHeader, frozen=True, kw_only=True):
    """An explicit commit; it may move back."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long
    epoch: int | None = _EPOCH


class GetMaxOffset(RequestHeader, frozen=True, kw_only=True):
    """The offset the next message of a queue will get."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: int
    committed: bool = True
    epoch: int | None = _EPOCH


class GetMinOffset(RequestHeader, frozen=True, kw_only=True):
    """The oldest offset a queue still has."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: int


class SearchOffset(RequestHeader, frozen=True, kw_only=True):
    """The offset of the first (LOWER) or last (UPPER) message around a store time."""

    CODE: ClassVar[RequestCode] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str = "LOWER"
    epoch: int | None = _EPOCH


class GetEarliestStoreTime(RequestHeader, frozen=True, kw_only=True):
    """Ask when the oldest message of a queue was stored."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: int


class OffsetFound(ResponseHeader, frozen=True, kw_only=True):
    """The answer to every request for one offset."""

    offset: int


class OffsetInEpoch(OffsetFound, frozen=True, kw_only=True):
    """The same for a client that sends an epoch; Apache's brokers never send one."""

    epoch: int | None = _EPOCH
    """The epoch of the log in which the offset was learned."""
    valid_end: int | None = msgspec.field(name="sparrowValidEnd", default=None)
    """The queue got shorter: offsets of the request's epoch are still valid up to here."""


class TimestampFound(ResponseHeader, frozen=True, kw_only=True):
    """The answer to a request for a store time; -1 if the queue is empty."""

    timestamp: int
