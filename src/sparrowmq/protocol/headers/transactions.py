"""Headers for ending transactions, and for asking producers how theirs ended."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class EndTransaction(RequestHeader, frozen=True, kw_only=True):
    """Commit a half message, or roll it back. Producers send it one-way."""

    CODE: ClassVar[RequestCode] = RequestCode.END_TRANSACTION

    producer_group: str
    tran_state_table_offset: int
    """The half message's queue offset."""
    commit_log_offset: int
    commit_or_rollback: int
    """TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, or TRANSACTION_NONE for not known yet."""
    from_transaction_check: bool = False
    """Whether it answers a check by the broker."""
    msg_id: str = ""
    transaction_id: str | None = None
    topic: str | None = None


class CheckTransactionState(RequestHeader, frozen=True, kw_only=True):
    """Broker to producer, one-way: how did this transaction end? The body is the message."""

    CODE: ClassVar[RequestCode] = RequestCode.CHECK_TRANSACTION_STATE

    topic: str | None = None
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ResumeCheckHalfMessage(RequestHeader, frozen=True, kw_only=True):
    """Ask producers again about a transaction that was set aside."""

    CODE: ClassVar[RequestCode] = RequestCode.RESUME_CHECK_HALF_MESSAGE

    msg_id: str
    """The offset id of the message in TRANS_CHECK_MAX_TIME_TOPIC."""
    topic: str | None = None
