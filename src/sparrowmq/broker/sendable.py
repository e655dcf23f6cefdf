"""Whether a client may send to a topic, creating it where that is allowed."""

from sparrowmq.broker.broker import Broker
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import AnySend
from sparrowmq.protocol.names import TIMER_TOPIC, UNSENDABLE_TOPICS, is_retry_topic, topic_fault
from sparrowmq.protocol.topic_config import TopicConfig


def topic_for_send(broker: Broker, request: Request[AnySend]) -> TopicConfig:
    """The topic, checked, created when its default topic lets it be; or RequestRefused.

    A topic that passes is remembered in `topics.sendable` until it changes.
    """
    header = request.header
    fault = topic_fault(header.topic)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    # Timers are the broker's as well; Apache would take them and never deliver them
    if header.topic in UNSENDABLE_TOPICS or header.topic == TIMER_TOPIC:
        text = f"topic {header.topic} belongs to the broker, clients cannot send to it"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    topic = broker.topics.get(header.topic) or _create(broker, header)
    broker.topics.sendable[header.topic] = topic
    return topic


def _create(broker: Broker, header: AnySend) -> TopicConfig:
    if len(broker.topics) >= broker.config.max_topics:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"topic {header.topic} cannot be created: this broker has {len(broker.topics)} topics,"
            f" at most {broker.config.max_topics} allowed (max_topics)",
        )
    created = broker.topics.inherit(
        header.topic, header.default_topic, header.default_topic_queue_nums
    )
    if created is None and is_retry_topic(header.topic):
        created = broker.topics.set_read_write(header.topic, 1)
    if created is None:
        raise RequestRefused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic {header.topic} does not exist and broker {broker.config.broker_name} does not"
            f" create topics; create it with: sparrowmq topic create {header.topic}",
        )
    broker.log.info("created topic %s with %d queues", header.topic, created.write_queue_nums)
    return created
