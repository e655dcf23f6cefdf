"""Brokers of one name compare their logs before one follows, and copy their tables, which only
SparrowMQ's do; and how far slaves are, as operators ask with Apache's codes."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class DescribeLog(RequestHeader, frozen=True, kw_only=True):
    """Ask a broker what its log is; the answer's body is a LogDescription."""

    CODE: ClassVar[RequestCode] = RequestCode.DESCRIBE_LOG
    returning_master: str = ""
    """host:port of a master that starts: a slave that still follows its last life need not wait
    until it notices."""


class FollowMaster(RequestHeader, frozen=True, kw_only=True):
    """Ask to follow; the body is the follower's LogClaim."""

    CODE: ClassVar[RequestCode] = RequestCode.FOLLOW_MASTER


class FollowAnswer(ResponseHeader, frozen=True, kw_only=True):
    """The broker may follow; the body is the LogDescription of the one it follows."""

    token: str = ""
    """Hexadecimal, to be presented on the HA connection; good for one, and for a few seconds."""
    ha_address: str = ""
    start: int = 0
    """The log offset to begin with."""
    must_start_anew: bool = False
    """It may follow with an empty log only: what follows its own has expired."""


class CopyTables(RequestHeader, frozen=True, kw_only=True):
    """Ask a broker for its tables; the body is a TableQuestion, that of the answer a TableState."""

    CODE: ClassVar[RequestCode] = RequestCode.COPY_TABLES


class CopyTablesAnswer(ResponseHeader, frozen=True, kw_only=True):
    """How the state travels."""

    is_deflated: bool = False
    """The body is compressed, as zlib does it."""


class GetHaStatus(RequestHeader, frozen=True, kw_only=True):
    """How replication is doing; the body of the answer is an HaStatus."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_HA_STATUS


class ResetMasterFlushOffset(RequestHeader, frozen=True, kw_only=True):
    """Tell a slave up to where its master's log is durable."""

    CODE: ClassVar[RequestCode] = RequestCode.RESET_MASTER_FLUSH_OFFSET

    master_flush_offset: int
