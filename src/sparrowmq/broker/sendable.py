"""Whether a client may send: its topic, created where that is allowed, and the sizes."""

from collections.abc import Callable

from sparrowmq.broker.broker import Broker
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Handled, Reply, Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import AnySend
from sparrowmq.protocol.names import TIMER_TOPIC, UNSENDABLE_TOPICS, is_retry_topic, topic_fault
from sparrowmq.protocol.properties import WAIT_STORE_OK, parse_properties
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.errors import DiskFull, MessageTooLarge, StoreStopped
from sparrowmq.store.messages import PutMessage


def topic_for_send(broker: Broker, request: Request[AnySend]) -> TopicConfig:
    """The topic, checked, created when its default topic lets it be; or RequestRefused.

    A saved topic that passes is remembered in `topics.sendable` until it changes.
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
    if broker.topics.is_saved(header.topic):
        broker.topics.sendable[header.topic] = topic
    return topic


def has_to_wait(broker: Broker, request: Request[AnySend]) -> bool:
    """Whether a message that is acknowledged now could be lost with its new topic in a crash."""
    return not (request.is_oneway or broker.topics.is_saved(request.header.topic))


async def send_when_saved(
    broker: Broker, request: Request[AnySend], send: Callable[[Broker, Request[AnySend]], Handled]
) -> Reply | None:
    """Send when the topic, which is new, would survive a crash."""
    try:
        await broker.saving.saved(broker.topics)
    except (DiskFull, OSError) as error:
        text = f"not stored, its topic cannot be saved: {error}"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error
    handled = send(broker, request)
    return handled if handled is None or isinstance(handled, Reply) else await handled


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


def answer_when_safe(
    broker: Broker, request: Request[AnySend], reply: Reply, end_offset: int
) -> Reply | None:
    """The reply to a send, or None if the sender has to wait for it until `end_offset` is safe."""
    if broker.durability.is_sync and _wants_to_wait(request):
        return broker.durability.reply_when_safe(request, reply, end_offset)
    return reply


def _wants_to_wait(request: Request[AnySend]) -> bool:
    """Whether the sender wants its answer only when the message is as safe as it can be."""
    # Looked for before it is looked up: nobody says false, and taking all apart is expensive.
    text = request.header.properties
    return "WAIT\x01false" not in text or parse_properties(text).get(WAIT_STORE_OK) != "false"


def check_size(broker: Broker, put: PutMessage) -> None:
    """Refuse a message over the limits, saying what they are."""
    if len(put.body) > broker.config.max_message_bytes:
        raise too_large(broker, len(put.body))
    if len(put.properties) > broker.config.max_properties_bytes:
        raise properties_too_large(broker, len(put.properties))


def too_large(broker: Broker, size: int) -> RequestRefused:
    """The refusal of a body over the limit."""
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"body of {size} bytes, at most {broker.config.max_message_bytes} allowed",
    )


def properties_too_large(broker: Broker, size: int) -> RequestRefused:
    """The refusal of properties over the limit."""
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"properties of {size} bytes, at most {broker.config.max_properties_bytes} allowed",
    )


def refusal(error: DiskFull | StoreStopped | MessageTooLarge) -> RequestRefused:
    """What the client is told when the store could not take a message."""
    if isinstance(error, MessageTooLarge):
        return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error))
    return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"not stored: {error}")
