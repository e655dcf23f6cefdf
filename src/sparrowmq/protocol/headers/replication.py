"""Headers for replication. Brokers of one name compare their logs before one follows, and operators
retire slaves: only SparrowMQ's brokers know these. Requests for slaves' progress have Apache's
codes."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class DescribeLog(RequestHeader, frozen=True, kw_only=True):
    """Ask a broker to describe its log; the answer's body is a LogDescription."""

    CODE: ClassVar[RequestCode] = RequestCode.DESCRIBE_LOG
    returning_master: str = ""
    """host:port of a master that is starting: a slave still following its last run then need not
    wait until it notices."""


class FollowMaster(RequestHeader, frozen=True, kw_only=True):
    """Ask to follow; the body is the follower's LogClaim."""

    CODE: ClassVar[RequestCode] = RequestCode.FOLLOW_MASTER


class FollowAnswer(ResponseHeader, frozen=True, kw_only=True):
    """The broker may follow; the body is the LogDescription of the one it follows."""

    token: str = ""
    """Hexadecimal, presented on the HA connection; valid for one connection, for a few seconds."""
    ha_address: str = ""
    start: int = 0
    """The log offset to begin with."""
    must_start_anew: bool = False
    """It may only follow with an empty log: the bytes after the end of its own have expired."""


class ReadLog(RequestHeader, frozen=True, kw_only=True):
    """Ask for bytes of the log as they are, of one file; the body of the answer may be shorter."""

    CODE: ClassVar[RequestCode] = RequestCode.READ_LOG
    start: int
    size: int


class HandOver(RequestHeader, frozen=True, kw_only=True):
    """Ask a master to hand over its role to one of its slaves."""

    CODE: ClassVar[RequestCode] = RequestCode.HAND_OVER
    slave_id: int = -1
    """-1 leaves the choice to the master."""
    dry_run: bool = False
    """Only say which slave would take over, or why none can."""


class HandedOver(ResponseHeader, frozen=True, kw_only=True):
    """The slave has accepted; both brokers restart."""

    new_master: str
    """host:port"""
    slave_id: int = -1
    """The new master's id so far."""
    behind_bytes: int = 0
    """How many bytes it lacked when it was asked."""


class TakeOver(RequestHeader, frozen=True, kw_only=True):
    """Ask a slave to become the master; the body is an Inheritance when its master asks."""

    CODE: ClassVar[RequestCode] = RequestCode.TAKE_OVER
    master_address: str = ""
    """The master that hands over; empty when an operator asks, because there is none."""
    log_end: int = -1
    """Where the master's log ends."""
    accept_loss: str = ""
    """The broker's name, when an operator accepts that messages may be lost."""
    dry_run: bool = False
    """Only say whether an operator could make it the master."""


class TakenOver(ResponseHeader, frozen=True, kw_only=True):
    """The slave has accepted, and starts again as the master."""

    slave_id: int
    """The slave's id so far."""
    log_end: int
    """Where its log ends."""


class ListSlaves(RequestHeader, frozen=True, kw_only=True):
    """Ask a master which slaves it remembers; the body of the answer is a SlaveList."""

    CODE: ClassVar[RequestCode] = RequestCode.LIST_SLAVES


class RetireSlave(RequestHeader, frozen=True, kw_only=True):
    """Make a master forget a slave that will not return."""

    CODE: ClassVar[RequestCode] = RequestCode.RETIRE_SLAVE

    broker_id: int


class CopyTables(RequestHeader, frozen=True, kw_only=True):
    """Ask a broker for its tables; the body is a TableQuestion, that of the answer a TableState."""

    CODE: ClassVar[RequestCode] = RequestCode.COPY_TABLES


class CopyTablesAnswer(ResponseHeader, frozen=True, kw_only=True):
    """How the state is encoded."""

    is_deflated: bool = False
    """The body is compressed, as zlib does it."""


class GiveTables(RequestHeader, frozen=True, kw_only=True):
    """A master that stops gives a slave its last tables; the body is a TableState."""

    CODE: ClassVar[RequestCode] = RequestCode.GIVE_TABLES
    master_address: str
    is_deflated: bool = False
    """The body is compressed, as zlib does it."""


class GetHaStatus(RequestHeader, frozen=True, kw_only=True):
    """How replication is doing; the body of the answer is an HaStatus."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_HA_STATUS


class ResetMasterFlushOffset(RequestHeader, frozen=True, kw_only=True):
    """Tell a slave how far its master's log is durable."""

    CODE: ClassVar[RequestCode] = RequestCode.RESET_MASTER_FLUSH_OFFSET

    master_flush_offset: int
