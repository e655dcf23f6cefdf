"""Headers for operators' requests about progress, lag and rates."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class GetTopicStats(RequestHeader, frozen=True, kw_only=True):
    """What the queues of a topic hold; the body of the answer is TopicStats."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


class GetConsumeStats(RequestHeader, frozen=True, kw_only=True):
    """Progress of a group, queue by queue; the body of the answer is ConsumeStats."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    """If omitted, all topics in which the group has progress."""
    topic_list: str | None = None
    """Several, each followed by a semicolon (5.4); subscribed to or not."""


class GetBrokerConsumeStats(RequestHeader, frozen=True, kw_only=True):
    """Progress of all groups; the body of the answer is ConsumeStatsList."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONSUME_STATS

    is_order: bool = False
    """Only topics that are configured as ordered."""


class GetConsumeTimeSpan(RequestHeader, frozen=True, kw_only=True):
    """Times of a group's progress; the body of the answer is ConsumeTimeSpan."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class ViewBrokerStats(RequestHeader, frozen=True, kw_only=True):
    """One counter over a minute, an hour and a day; the body of the answer is BrokerStatsData."""

    CODE: ClassVar[RequestCode] = RequestCode.VIEW_BROKER_STATS_DATA

    stats_name: str
    """Such as TOPIC_PUT_NUMS."""
    stats_key: str
    """A topic, `topic@group`, or the cluster."""


class QueryConsumeQueue(RequestHeader, frozen=True, kw_only=True):
    """Raw units of a consume queue; the body of the answer is ConsumeQueueUnits."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_QUEUE

    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None


class QueryCorrectionOffset(RequestHeader, frozen=True, kw_only=True):
    """The lowest offset of all groups per queue, compared with one group's own."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CORRECTION_OFFSET

    topic: str
    compare_group: str
    filter_groups: str | None = None
    """Names of groups to exclude, separated by commas."""


class GetAllConsumerOffsets(RequestHeader, frozen=True, kw_only=True):
    """All groups' progress; the body of the answer is ConsumerOffsetTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_CONSUMER_OFFSET


class GetAllDelayOffsets(RequestHeader, frozen=True, kw_only=True):
    """How far each delay level is delivered; the body of the answer is DelayOffsetTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_DELAY_OFFSET


class GetTimerCheckpoint(RequestHeader, frozen=True, kw_only=True):
    """How far delivery times are delivered; the body of the answer is 56 bytes."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TIMER_CHECK_POINT


class GetTimerMetrics(RequestHeader, frozen=True, kw_only=True):
    """How many timers wait by topic; the body of the answer is TimerMetrics."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_TIMER_METRICS


class CloneGroupOffset(RequestHeader, frozen=True, kw_only=True):
    """Give a group the progress of another."""

    CODE: ClassVar[RequestCode] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
    """If false, only topics that the live source group subscribes to."""
