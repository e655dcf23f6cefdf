"""What operators ask a broker about consumer groups."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


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
