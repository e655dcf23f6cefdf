"""Pulling messages (11), the same for lite pull consumers (361), and the answer."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader
from sparrowmq.protocol.java_numbers import Long


class PullMessage(RequestHeader, frozen=True, kw_only=True):
    """Messages of one queue from an offset on; may wait at the broker when there are none."""

    CODE: ClassVar[RequestCode] = RequestCode.PULL_MESSAGE

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    epoch: int | None = msgspec.field(name="sparrowEpoch", default=None)
    """In which epoch of the log the offsets were learned; 0 when that is not known."""


class LitePullMessage(PullMessage, frozen=True, kw_only=True):
    """A pull of a lite pull consumer: the same in every respect but its code."""

    CODE: ClassVar[RequestCode] = RequestCode.LITE_PULL_MESSAGE


class Pulled(ResponseHeader, frozen=True, kw_only=True):
    """All four are required by every client."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int


class PulledInEpoch(Pulled, frozen=True, kw_only=True):
    """The same for a client that says an epoch; Apache's brokers say none."""

    epoch: int | None = msgspec.field(name="sparrowEpoch", default=None)
    """In which epoch the next offset was learned."""
    valid_end: int | None = msgspec.field(name="sparrowValidEnd", default=None)
    """The queue got shorter: offsets of the request's epoch mean what they meant up to here."""
