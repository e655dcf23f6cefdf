"""Calls that reach a live consumer through its broker: an operator asks, the member answers.

Operators send 222 and 223, which the broker turns into 220 and 221 for each member; 307 and 309 are
forwarded unchanged.
"""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class GetConsumerRunningInfo(RequestHeader, frozen=True, kw_only=True):
    """What a member is doing; the body of the answer is ConsumerRunningInfo."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool = False
    """Whether the answer should hold the stacks of the member's threads or tasks."""


class ConsumeMessageDirectly(RequestHeader, frozen=True, kw_only=True):
    """Let a member consume one stored message now; the body of the answer is
    ConsumeDirectlyResult. The broker adds the message as body, and the fields after `topic`."""

    CODE: ClassVar[RequestCode] = RequestCode.CONSUME_MESSAGE_DIRECTLY

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    """The offset id, which names the broker and the log offset."""
    topic: str | None = None
    broker_name: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


class ResetConsumerOffset(RequestHeader, frozen=True, kw_only=True):
    """Broker to member, one-way: continue at the offsets in the body, which is ResetOffset."""

    CODE: ClassVar[RequestCode] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    topic: str
    group: str
    timestamp: int
    is_force: bool = True
    queue_id: int = -1
    offset: int | None = None


class GetConsumerStatus(RequestHeader, frozen=True, kw_only=True):
    """Broker to member: its offsets in a topic; the body of the answer is ConsumerStatus."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_addr: str | None = None


class InvokeResetOffset(RequestHeader, frozen=True, kw_only=True):
    """Move a group, online or not, to a store time or to an offset."""

    CODE: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    topic: str
    group: str
    timestamp: int
    """Below 0: to the end of each queue."""
    is_force: bool = True
    """If false, a queue never moves forward, so that nothing is skipped."""
    queue_id: int = -1
    """Below 0: all queues."""
    offset: int | None = None
    """For one queue; takes precedence over the time."""


class InvokeConsumerStatus(RequestHeader, frozen=True, kw_only=True):
    """The offsets that a group's members report; the body of the answer is ConsumerStatus."""

    CODE: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    topic: str
    group: str
    client_addr: str | None = None
    """A client id, despite its name; all members if omitted."""
