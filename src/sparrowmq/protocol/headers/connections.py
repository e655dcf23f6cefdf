"""Headers for operators' requests about live clients and their subscriptions."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader


class GetConsumerConnections(RequestHeader, frozen=True, kw_only=True):
    """A group's live members; the body of the answer is ConsumerConnection."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


class GetProducerConnections(RequestHeader, frozen=True, kw_only=True):
    """A producer group's live members; the body of the answer is ProducerConnection."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class GetAllProducers(RequestHeader, frozen=True, kw_only=True):
    """All live producers; the body of the answer is ProducerTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_ALL_PRODUCER_INFO


class GetConsumersOfTopic(RequestHeader, frozen=True, kw_only=True):
    """Groups that subscribe to a topic or have progress in it; answered with a GroupList."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


class GetTopicsOfConsumer(RequestHeader, frozen=True, kw_only=True):
    """Topics in which a group has progress; the body of the answer is a TopicList."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class GetSubscription(RequestHeader, frozen=True, kw_only=True):
    """What a live group wants of a topic."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str = ""
