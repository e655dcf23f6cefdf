"""Headers for emptying a broker before it is stopped. Only SparrowMQ's brokers know them."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class BeginDrain(RequestHeader, frozen=True, kw_only=True):
    """Accept no new messages from now on. Repeating it changes nothing."""

    CODE: ClassVar[RequestCode] = RequestCode.BEGIN_DRAIN
    grace_ms: int = 0
    """How long connected producers may still send, until they have asked for routes again."""


class LookAtDrain(RequestHeader, frozen=True, kw_only=True):
    """Ask what is left; the body of the answer is a DrainReport. The request may have a body too:
    ReadElsewhere names groups that count as readers here."""

    CODE: ClassVar[RequestCode] = RequestCode.LOOK_AT_DRAIN


class LeaveCluster(RequestHeader, frozen=True, kw_only=True):
    """Unregister, unless something was stored since the report that this log end comes from."""

    CODE: ClassVar[RequestCode] = RequestCode.LEAVE_CLUSTER
    log_end: int


class ClusterLeft(ResponseHeader, frozen=True, kw_only=True):
    """The broker is no longer registered."""

    unconfirmed: str = ""
    """Name servers that did not answer, separated by commas; they forget it within two minutes."""


class EndDrain(RequestHeader, frozen=True, kw_only=True):
    """Register and accept messages again. Repeating it changes nothing."""

    CODE: ClassVar[RequestCode] = RequestCode.END_DRAIN
