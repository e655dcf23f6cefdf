"""Headers for pulling messages (11), the same for lite pull consumers (361), and the answer."""

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
    """The epoch of the log in which the offsets were learned; 0 if unknown."""


class LitePullMessage(PullMessage, frozen=True, kw_only=True):
    """A pull of a lite pull consumer: identical except for the code."""

    CODE: ClassVar[RequestCode] = RequestCode.LITE_PULL_MESSAGE


class Pulled(ResponseHeader, frozen=True, kw_only=True):
    """Every client requires all four fields."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int


class PulledInEpoch(Pulled, frozen=True, kw_only=True):
    """The same for a client that sends an epoch; Apache's brokers never send one."""

    epoch: int | None = msgspec.field(name="sparrowEpoch", default=None)
    """The epoch in which the next offset was learned."""
    valid_end: int | None = msgspec.field(name="sparrowValidEnd", default=None)
    """The queue got shorter: offsets of the request's epoch are still valid up to here."""
