"""Operators empty a broker before they stop it. Only SparrowMQ's brokers know these requests."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class BeginDrain(RequestHeader, frozen=True, kw_only=True):
    """Take no new messages from now on. Again changes nothing."""

    CODE: ClassVar[RequestCode] = RequestCode.BEGIN_DRAIN
    grace_ms: int = 0
    """How long connected producers may still send, until they have asked for routes again."""


class LookAtDrain(RequestHeader, frozen=True, kw_only=True):
    """What is left; the body of the answer is a DrainReport."""

    CODE: ClassVar[RequestCode] = RequestCode.LOOK_AT_DRAIN


class LeaveCluster(RequestHeader, frozen=True, kw_only=True):
    """Unregister, unless something was stored since the report that this log end comes from."""

    CODE: ClassVar[RequestCode] = RequestCode.LEAVE_CLUSTER
    log_end: int


class ClusterLeft(ResponseHeader, frozen=True, kw_only=True):
    """It is not registered any more."""

    unconfirmed: str = ""
    """Name servers that did not answer, separated by commas; they forget it within two minutes."""


class EndDrain(RequestHeader, frozen=True, kw_only=True):
    """Register and take messages again. Again changes nothing."""

    CODE: ClassVar[RequestCode] = RequestCode.END_DRAIN
