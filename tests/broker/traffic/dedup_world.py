"""A world of deliveries whose topic orders is de-duplicated."""

import msgspec

from sparrowmq.broker.topics import plain_topic
from sparrowmq.net.routes import Reply
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import SendBatchMessage, SpecialMessageSent
from sparrowmq.protocol.properties import encode_properties
from sparrowmq.protocol.topic_config import TopicConfig
from tests.broker.delivery_world import DeliveryWorld


def dedup_topic(name: str = "orders", value: str = "on") -> TopicConfig:
    return msgspec.structs.replace(plain_topic(name, 4), attributes={"sparrowmq.dedup": value})


def dedup_world(value: str = "on", **settings: object) -> DeliveryWorld:
    world = DeliveryWorld(**settings)  # type: ignore[arg-type]  # settings of a broker
    world.broker.topics.put(dedup_topic(value=value))
    return world


def stored(world: DeliveryWorld, topic: str = "orders") -> list[bytes]:
    """Bodies of all queues."""
    return [one.body for queue_id in range(4) for one in world.messages(topic, queue_id)]


def send_batch(
    world: DeliveryWorld, *messages: tuple[str, bytes], queue_id: int = 0, is_320: bool = True
) -> Reply:
    """Unique ids, which may be empty, and bodies."""
    parts = [
        (0, body, encode_properties({"UNIQ_KEY": identity} if identity else {"A": "b"}))
        for identity, body in messages
    ]
    header = world.send_header("orders", queue_id, {})
    if is_320:
        fields = msgspec.structs.asdict(header)
        return world.call(SendBatchMessage(**fields), encode_batch(parts))
    return world.call(msgspec.structs.replace(header, batch=True), encode_batch(parts))


def batch_answer(reply: Reply) -> tuple[list[int], int, int]:
    """Log offsets, queue id and queue offset."""
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert isinstance(reply.header, SpecialMessageSent)
    ids = reply.header.msg_id.split(",")
    return [int(one[-16:], 16) for one in ids], reply.header.queue_id, reply.header.queue_offset
