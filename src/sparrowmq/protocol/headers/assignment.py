"""Queues that the broker allocates to the members of a group (5.x)."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class QueryAssignment(RequestHeader, frozen=True, kw_only=True):
    """The asking member's queues; the body is QueryAssignmentRequest."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_ASSIGNMENT


class SetMessageRequestMode(RequestHeader, frozen=True, kw_only=True):
    """How a group consumes a topic; the body is MessageRequestMode."""

    CODE: ClassVar[RequestCode] = RequestCode.SET_MESSAGE_REQUEST_MODE


class GetAllMessageRequestModes(RequestHeader, frozen=True, kw_only=True):
    """How all groups consume; the body of the answer is MessageRequestModeTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
