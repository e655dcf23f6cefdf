"""A due message without a destination becomes a dead letter and blocks no later message."""

from collections.abc import Iterator

import pytest

from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.properties import format_properties
from sparrowmq.store.messages import PutMessage
from tests.broker.delivery_world import DeliveryWorld, bodies, orders_world

HEIRLESS = "%DLQ%SCHEDULE_CONSUMER"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def test_a_message_whose_topic_is_gone_becomes_a_dead_letter_and_blocks_no_other(
    world: DeliveryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.send("doomed", b"lost its topic", DELAY="1", TAGS="t", UNIQ_KEY="U1")
    world.send("orders", b"fine", DELAY="1")
    world.broker.topics.remove("doomed")
    world.pass_time(1)
    assert world.deliver() is None
    assert bodies(world) == [b"fine"]
    (dead,) = world.messages(HEIRLESS)
    assert (dead.body, dead.tags) == (b"lost its topic", "t")
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "doomed"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == "U1"
    assert "topic doomed no longer exists" in caplog.text


def test_a_message_whose_queue_is_gone_becomes_a_dead_letter(world: DeliveryWorld) -> None:
    world.send("orders", queue_id=3, DELAY="1")
    world.broker.topics.put(plain_topic("orders", 2))
    world.pass_time(1)
    world.deliver()
    assert len(world.messages(HEIRLESS)) == 1


def test_a_message_that_has_become_too_large_becomes_a_dead_letter(world: DeliveryWorld) -> None:
    world.send("orders", bytes(1000), DELAY="1")
    world.send("orders", b"small", DELAY="1")
    world.stop()
    world.config = type(world.config)(
        data_dir=world.config.data_dir, store=world.config.store, max_message_bytes=500
    )
    world.start()
    world.pass_time(1)
    world.deliver()
    assert bodies(world) == [b"small"]
    assert len(world.messages(HEIRLESS)) == 1


def test_retries_of_a_deleted_group_end_in_its_dead_letters(world: DeliveryWorld) -> None:
    world.send("orders", b"an order")
    world.give_back(world.messages("orders")[0], "billing")
    world.broker.groups.remove("billing")
    world.broker.topics.remove("%RETRY%billing")
    world.pass_time(10)
    world.deliver()
    assert bodies(world, "%DLQ%billing") == [b"an order"]


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "no spaces", ""])
def test_a_message_that_names_no_topic_to_deliver_to_becomes_a_dead_letter(
    world: DeliveryWorld, topic: str
) -> None:
    divert(world, REAL_TOPIC=topic, REAL_QID="0")
    world.send("orders", b"fine", DELAY="1")
    world.pass_time(1)
    world.deliver()
    assert bodies(world, HEIRLESS) == [b"put aside"]
    assert bodies(world) == [b"fine"]


@pytest.mark.parametrize("queue_id", ["", "-1", "4", "x", "\u0661"])
def test_a_message_that_names_no_queue_of_its_topic_becomes_a_dead_letter(
    world: DeliveryWorld, queue_id: str
) -> None:
    divert(world, REAL_TOPIC="orders", REAL_QID=queue_id)
    world.pass_time(1)
    world.deliver()
    assert bodies(world, HEIRLESS) == [b"put aside"]


def divert(world: DeliveryWorld, **properties: str) -> None:
    """A record in the queue of the first level, as another broker may have written it."""
    put = PutMessage(
        SCHEDULE_TOPIC,
        0,
        0,
        0,
        world.now_ms,
        world.peer.peer_bytes,
        0,
        b"put aside",
        format_properties(properties).encode(),
        world.now_ms + 1_000,
        "U1",
    )
    world.broker.store.append(put, world.now_ms)


def test_a_deleted_retry_topic_is_recreated_while_its_group_exists(
    world: DeliveryWorld,
) -> None:
    world.send("orders", b"an order")
    world.give_back(world.messages("orders")[0], "billing")
    world.broker.topics.remove("%RETRY%billing")
    world.pass_time(10)
    world.deliver()
    assert bodies(world, "%RETRY%billing") == [b"an order"]


def test_a_dead_letter_without_room_for_its_origin_is_kept_as_it_was(world: DeliveryWorld) -> None:
    room = world.config.max_properties_bytes - 200
    world.post("doomed", b"large", {"DELAY": "1", "mine": "x" * room})
    world.broker.topics.remove("doomed")
    world.pass_time(1)
    world.deliver()
    (dead,) = world.messages(HEIRLESS)
    assert "DLQ_ORIGIN_TOPIC" not in dead.properties
    assert dead.properties["mine"] == "x" * room
