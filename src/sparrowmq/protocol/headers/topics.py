"""Headers for operators' requests about topics."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class CreateTopic(RequestHeader, frozen=True, kw_only=True):
    """Create a topic or change it."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str = ""
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    """Changes such as `+message.type=FIFO,-cleanup.policy`."""


class CreateTopics(RequestHeader, frozen=True, kw_only=True):
    """Create several topics or change them; the body lists them."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


class DeleteTopic(RequestHeader, frozen=True, kw_only=True):
    """Delete a topic with its queues and every group's progress in it."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


class GetTopicConfig(RequestHeader, frozen=True, kw_only=True):
    """How one topic is configured."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPIC_CONFIG

    topic: str


class GetAllTopicConfig(RequestHeader, frozen=True, kw_only=True):
    """How all topics are configured."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_CONFIG

    topic_seq: int | None = None
    """The first topic to return, for tables too long for one answer (5.4)."""
    max_topic_num: int | None = None
    data_version: str | None = None
    """The version of the previous pages, as JSON: if the table has changed, paging starts over."""


class AllTopicConfig(ResponseHeader, frozen=True, kw_only=True):
    """How many topics there are in all."""

    total_topic_num: int


class GetSystemTopicsOfBroker(RequestHeader, frozen=True, kw_only=True):
    """The broker's own topics; the body of the answer is a TopicList."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
