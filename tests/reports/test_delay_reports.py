"""Delayed messages of RocketMQ users that never arrived, or arrived twice, by report number."""

from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery.delay_levels import DelayOffsets
from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from tests.broker.delivery_world import DeliveryWorld

TABLE = "config/delayOffset.json"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        world.broker.topics.put(plain_topic("orders", 4))
        yield world


def bodies(world: DeliveryWorld, topic: str = "orders") -> list[bytes]:
    return [message.body for message in world.messages(topic)]


@pytest.mark.parametrize("wrong", [5, 77, 10**12])
def test_report_1869_and_7077_progress_beyond_the_queue_does_not_stop_its_level(
    world: DeliveryWorld, wrong: int
) -> None:
    for number in range(4):
        world.send("orders", b"%d" % number, DELAY="2")
    world.pass_time(6)
    world.stop()
    world.disk.poke(TABLE, DelayOffsets(offset_table={2: wrong}).to_json())
    world.start()
    world.send("orders", b"later", DELAY="2")
    world.pass_time(6)
    assert bodies(world)[-1] == b"later"
    world.save()
    world.kill()
    world.send("orders", b"after a kill", DELAY="2")
    world.pass_time(6)
    assert bodies(world)[-2:] == [b"later", b"after a kill"], "and the file is right again"


def test_report_3966_a_level_continues_after_messages_that_cannot_be_delivered(
    world: DeliveryWorld,
) -> None:
    for number in range(3):
        world.send(f"gone-{number}", b"lost", DELAY="1")
    world.send("orders", b"next", DELAY="1")
    for number in range(3):
        world.broker.topics.remove(f"gone-{number}")
    world.pass_time(1)
    world.deliver()
    assert bodies(world) == [b"next"]
    world.save()
    world.kill()
    world.pass_time(60)
    assert bodies(world) == [b"next"], "nothing is tried for ever"


def test_report_3473_a_broker_stopped_in_order_repeats_no_delivery(
    world: DeliveryWorld,
) -> None:
    for number in range(500):
        world.send("orders", b"%d" % number, DELAY=str(1 + number % 2))
    world.pass_time(1)
    for _ in range(3):
        world.stop()
        world.start()
        world.pass_time(3)
    assert len(bodies(world)) == len(set(bodies(world))) == 500


@pytest.mark.parametrize("level", [1, 2, 5])
def test_report_6269_a_restart_neither_prolongs_nor_shortens_a_delay(
    world: DeliveryWorld, level: int
) -> None:
    sent_ms = world.now_ms
    world.send("orders", b"x", DELAY=str(level))
    world.now_ms += RETRY_DELAYS_MS[level - 1] // 2
    world.kill()
    due_ms = world.deliver()
    assert due_ms == sent_ms + RETRY_DELAYS_MS[level - 1]
    world.now_ms = due_ms - 1
    world.deliver()
    assert bodies(world) == []
    world.now_ms = due_ms
    world.deliver()
    assert bodies(world) == [b"x"]


def test_report_4226_the_largest_message_can_be_retried() -> None:
    with DeliveryWorld(max_message_bytes=500_000) as world:
        world.broker.topics.put(plain_topic("orders", 4))
        world.send("orders", b"x" * 500_000, mine="v" * 30_000)
        (message,) = world.messages("orders")
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        world.pass_time(20)
        assert bodies(world, "%RETRY%billing") == [b"x" * 500_000]
