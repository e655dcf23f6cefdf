"""Consumer groups: their configuration, how they consume, and allocation by brokers (5.x)."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class CreateGroup(RequestHeader, frozen=True, kw_only=True):
    """Create a group or change it; the body is SubscriptionGroupConfig."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class CreateGroups(RequestHeader, frozen=True, kw_only=True):
    """Create several groups or change them; the body is SubscriptionGroupList."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


class DeleteGroup(RequestHeader, frozen=True, kw_only=True):
    """Delete a group and, if asked, its progress."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group_name: str
    clean_offset: bool = False


class GetGroupConfig(RequestHeader, frozen=True, kw_only=True):
    """How one group is configured."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class GetAllGroupConfig(RequestHeader, frozen=True, kw_only=True):
    """How all groups are configured."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: int | None = None
    """The first group to return, for tables too long for one answer (5.4)."""
    max_group_num: int | None = None
    data_version: str | None = None
    """The version of the previous pages, as JSON: if the table has changed, paging starts over."""


class AllGroupConfig(ResponseHeader, frozen=True, kw_only=True):
    """How many groups there are in all."""

    total_group_num: int


class QueryAssignment(RequestHeader, frozen=True, kw_only=True):
    """The asking member's queues; the body is QueryAssignmentRequest."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_ASSIGNMENT


class SetMessageRequestMode(RequestHeader, frozen=True, kw_only=True):
    """How a group consumes a topic; the body is MessageRequestMode."""

    CODE: ClassVar[RequestCode] = RequestCode.SET_MESSAGE_REQUEST_MODE


class GetAllMessageRequestModes(RequestHeader, frozen=True, kw_only=True):
    """How all groups consume; the body of the answer is MessageRequestModeTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
