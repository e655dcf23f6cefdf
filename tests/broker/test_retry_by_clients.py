"""What clients send to a retry topic themselves."""

from collections.abc import Iterator

import pytest

from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.headers.send import MessageSent
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.subscription import SubscriptionData
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.retry_world import DEAD, RETRY, first_message


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


def test_a_client_may_send_to_the_retry_topic_until_the_limit(world: DeliveryWorld) -> None:
    world.broker.groups.find("billing")
    for times in (1, 16):
        reply = world.try_again(RETRY, b"again", times, DELAY=str(3 + times))
        assert isinstance(reply.header, MessageSent)
    world.pass_time(2 * 3600)
    assert [message.reconsume_times for message in world.messages(RETRY)] == [1, 16]
    world.try_again(RETRY, b"dead", 17, DELAY="20", RETRY_TOPIC="orders")
    (dead,) = world.messages(DEAD)
    assert dead.body == b"dead"
    assert dead.properties["DELAY"] == "-1"
    assert dead.original_topic == "orders"


def test_the_clients_own_limit_replaces_the_groups(world: DeliveryWorld) -> None:
    world.try_again(RETRY, b"dead", 4, 3, DELAY="7")
    assert [message.body for message in world.messages(DEAD)] == [b"dead"]


def test_an_ordered_consumer_that_gives_up_sends_to_the_dead_letters(
    world: DeliveryWorld,
) -> None:
    first_message(world)
    data = ConsumerData(
        group_name="billing",
        subscription_data_set=(SubscriptionData(topic="orders", sub_string="*"),),
    )
    beat = HeartbeatData(client_id="c1", consumer_data_set=(data,))
    world.call(Heartbeat(), beat.to_json())
    queue = MessageQueue("orders", world.config.broker_name, 1)
    world.broker.locks.lock("billing", "c1", [queue])
    world.try_again(RETRY, b"given up", 1, DELAY="4", RETRY_TOPIC="orders")
    assert [message.body for message in world.messages(DEAD)] == [b"given up"]
    world.now_ms += 61_000
    world.try_again(RETRY, b"not ordered", 1, DELAY="4", RETRY_TOPIC="orders")
    assert len(world.messages(DEAD)) == 1
