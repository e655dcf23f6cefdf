"""A slave says hello before it follows over an HA connection. Only SparrowMQ's brokers do."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class FollowMaster(RequestHeader, frozen=True, kw_only=True):
    """Ask to follow; the body is the slave's LogClaim."""

    CODE: ClassVar[RequestCode] = RequestCode.FOLLOW_MASTER


class FollowAnswer(ResponseHeader, frozen=True, kw_only=True):
    """The slave may follow; the body is the master's LogClaim."""

    token: str
    """Hexadecimal, to be presented on the HA connection; good for one, and for a few seconds."""
    ha_address: str
    start: int
    """The log offset to begin with."""
