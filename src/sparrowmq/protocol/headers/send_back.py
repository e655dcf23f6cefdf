"""Giving a message back that could not be consumed."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class SendBack(RequestHeader, frozen=True, kw_only=True):
    """Store a message again for its group, to be delivered later or, at last, as a dead letter."""

    CODE: ClassVar[RequestCode] = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: int
    """Where the message lies in the commit log."""
    group: str
    delay_level: int
    """0: the broker decides by the number of attempts; -1: to the dead letters at once."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
